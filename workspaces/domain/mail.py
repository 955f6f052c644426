"""Addresses and header lines of e-mail: what may stand in them. Pure. Never says whether a mailbox exists."""

from __future__ import annotations

import re
import unicodedata
from email.utils import parseaddr

ADDRESS_CHARS = 254  # RFC 5321, 4.5.3.1.3: a path has 256 octets with its brackets
_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}\Z")
_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)


def address_problem(address: str) -> str:
    """Why this is no address to write to, or an empty string. One bare address: no name, no list, no line break."""
    if not address:
        return "an e-mail address is missing"
    if len(address) > ADDRESS_CHARS:
        return f"an e-mail address has at most {ADDRESS_CHARS} characters"
    if not address.isascii() or not address.isprintable() or " " in address:
        return "an e-mail address has no spaces, no line breaks and plain letters only"
    local, at, domain = address.rpartition("@")
    plain = _LOCAL.match(local) and not local.startswith(".") and not local.endswith(".") and ".." not in local
    if not at or not plain or not _DOMAIN.match(domain):
        return f"{address} is no e-mail address"
    return ""


def sender_problem(sender: str) -> str:
    """Why mail cannot come from this, or an empty string: an address, or a name with an address in <>."""
    if not sender.isprintable():
        return "the sender has a line break or a control character"
    return address_problem(parseaddr(sender)[1])


def domain_of(sender: str) -> str:
    """The part after the @ of a sender, lower case; "localhost" where there is none."""
    return parseaddr(sender)[1].rpartition("@")[2].lower() or "localhost"


def one_line(text: str, limit: int) -> str:
    """What may stand in a header: no line break, no control or direction mark, spaces single, at most `limit` long."""
    line = " ".join("".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in text).split())
    line = "".join(char for char in line if unicodedata.category(char) not in ("Cf", "Cs"))
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
