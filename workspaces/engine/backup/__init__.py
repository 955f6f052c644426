"""A copy of the whole installation in a folder, and an installation made from it."""
