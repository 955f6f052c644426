"""Tells people: digests what was signalled and sends what is due, without a task's step ever waiting for it."""

from __future__ import annotations


def nudge() -> None:
    """Something was committed that may have to be told: look now."""
