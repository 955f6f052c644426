"""Postgres as Django speaks to it, and one thing more: statements that are repeated keep their plans (base.py)."""
