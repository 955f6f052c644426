"""Takes secrets out of what a server says: as they are, and in the ways in which servers repeat them. Pure.

No way to stop a server that means to give them away: it has them. It keeps what is only echoed out of traces and pages.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

REMOVED = "[removed]"
_LEAST = 4  # what is shorter would be found in every other word


class Hidden:
    """`values`: the secrets; of "Bearer abc" also abc alone is one."""

    def __init__(self, values: Iterable[str]) -> None:
        parts = {part for value in values for part in (value, value.partition(" ")[2]) if len(part) >= _LEAST}
        self._parts = sorted(parts, key=len, reverse=True)
        forms = sorted({form for part in parts for form in _forms(part)}, key=len, reverse=True)
        raw = {form.encode(coding) for form in forms for coding in ("utf-8", "utf-16-le", "utf-16-be")}
        by_length = sorted(raw, key=len, reverse=True)
        # in any case: a host's name is made small
        self._text = re.compile("|".join(map(re.escape, forms)), re.IGNORECASE) if forms else None
        self._bytes = re.compile(b"|".join(map(re.escape, by_length)), re.IGNORECASE) if forms else None

    def off(self, text: str) -> str:
        return self._text.sub(REMOVED, text) if self._text else text

    def off_bytes(self, body: bytes, *, cut: bool = False) -> bytes:
        """`cut`: there was more, so its end may be the beginning of a secret."""
        if self._bytes is None:
            return body
        body = self._bytes.sub(REMOVED.encode(), body)
        for part in self._parts if cut else ():
            raw = part.encode()
            for length in range(len(raw) - 1, _LEAST - 1, -1):
                if body.endswith(raw[:length]):
                    return body[:-length] + REMOVED.encode()
        return body

    def is_in(self, text: str) -> bool:
        return bool(self._text and self._text.search(text))


def _forms(part: str) -> Iterator[str]:
    """As JSON, an address, a form, HTML, a header of basic sign-in and a program's own quotes write it."""
    yield part
    for plain in (json.dumps(part), json.dumps(part, ensure_ascii=False)):
        yield plain[1:-1]
        yield plain[1:-1].replace("/", "\\/")
    yield quote(part)
    yield quote(part, safe="")
    yield quote_plus(part)
    yield html.escape(part)
    yield repr(part)[1:-1]
    yield b64encode(part.encode()).decode().rstrip("=")
