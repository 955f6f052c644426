"""Layer 1, domain: pure decisions and value objects. No Django, no I/O."""
