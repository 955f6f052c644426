"""What agentdesk is: one Django app whose folders are its layers."""
