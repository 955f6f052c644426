"""What people type with an order: cleaned, and not longer than a page that shows it can bear."""

from __future__ import annotations

from workspaces.domain.text import clean_text

from .errors import Refused

REASON_CHARS = 2_000
MESSAGE_CHARS = 100_000  # it is sent to the model with every request from then on
NOTE_CHARS = 100_000


def taken(text: str, what: str, limit: int = REASON_CHARS) -> str:
    """The text without blanks around it. Raises Refused when it is longer than `limit`."""
    text = clean_text(text).strip()
    if len(text) > limit:
        raise Refused(f"The {what} has {len(text):,} characters; at most {limit:,} are taken.")
    return text
