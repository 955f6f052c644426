"""What an action raises when it does not act."""

from __future__ import annotations


class Refused(Exception):  # an answer to a person, not a fault
    """The change is not possible now; the message says why and what to do. Nothing was written."""


class FenceLost(Exception):  # an order to stop, not a fault
    """Another worker holds the task now. Whoever gets this stops at once and writes nothing more."""
