"""Benchmarks that anyone can run again: each prints a table and, last, one JSON line with `holds`."""
