"""Text that every store and model can hold. Pure."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 64  # of JSON that comes from outside: what walks it may recurse
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean_text(text: str) -> str:
    """Replace what Postgres text or UTF-8 cannot hold: NUL bytes and unpaired surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", _REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_json(value: Any) -> Any:
    """`clean_text` applied to every string, key and value, of a JSON value. It recurses: ask `too_deep` first."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_json(item) for key, item in value.items()}
    return value


def too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether lists and objects are nested more than `limit` levels deep. Does not recurse itself."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list | tuple)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def read_json(text: str) -> Any:
    """Raises ValueError, also for what is nested more than MAX_DEPTH levels deep: reader and writer recurse."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and too_deep(value):
        raise ValueError("nested too deeply")
    return value


def decode_output(raw: bytes) -> str:
    """Command output as text: UTF-8, or a note with the size and the first bytes in hex when it is binary."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        cut_short = error.start >= len(raw) - 3 and error.reason == "unexpected end of data"
        if cut_short or not _looks_binary(raw):
            return clean_text(raw.decode("utf-8", "replace"))
        return binary_note(raw)
    return binary_note(raw) if _looks_binary(raw) else clean_text(text)


def binary_note(raw: bytes) -> str:
    return f"[binary output, {len(raw)} bytes, begins {raw[:16].hex(' ')}]"


def _looks_binary(raw: bytes) -> bool:
    sample = raw[:8192]
    control = sum(1 for byte in sample if byte < 32 and byte not in (7, 8, 9, 10, 12, 13, 27))
    return control > len(sample) * 0.05


def clip(text: str, limit: int) -> str:
    """At most `limit` characters of `text`, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"
