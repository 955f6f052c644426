"""Actions: one transaction each, and what must always be true of what they leave."""
