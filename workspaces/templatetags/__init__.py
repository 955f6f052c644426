"""Filters that format what templates show."""
