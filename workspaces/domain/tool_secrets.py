"""Which values in a profile's tools are secret, and how they are kept apart from what is shown. Pure.

A secret is named by the place that it was given for (a host, an address, a command) and its name. So it can be kept
for a next version only where the place is the same: nobody sends a colleague's key to a server of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from workspaces.domain.effects import canonical_json

KEPT = "(kept)"  # stands for a secret value on every page and in every stored setting


class MissingSecret(ValueError):
    """A value is to be kept, and there is none for this place. `str` says which."""


Slot = tuple[str, str, dict[str, Any], str]


def _slots(http: Any, servers: Any) -> Iterator[Slot]:
    """(name to keep it by, in words, the object that holds it, its key there), of whatever has the right form."""
    headers = http.get("headers") if isinstance(http, dict) else None
    for place, values in headers.items() if isinstance(headers, dict) else ():
        yield from _of(values, canonical_json(["http", str(place).lower()]), f"the header for {place}")
    for server in servers if isinstance(servers, list) else ():
        if not isinstance(server, dict):
            continue
        place = canonical_json(["mcp", str(server.get("url", "")), server.get("command")])
        for part in ("headers", "env"):
            yield from _of(server.get(part), f"{place} {part}", f"{part} of the server {server.get('name')}")


def _of(values: Any, place: str, words: str) -> Iterator[Slot]:
    for name, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, str):
            yield f"{place} {name}", f"{name}, {words}", values, name


def take_out(
    http: Mapping[str, Any], servers: list[Any], known: Callable[[], Mapping[str, str]]
) -> tuple[dict[str, Any], list[Any], dict[str, str]]:
    """The settings as they may be shown, and the secrets by their names. `known`: those of the version before.

    Raises MissingSecret when one is to be kept that is not known.
    """
    shown, listed = deepcopy(dict(http)), deepcopy(list(servers))
    secrets: dict[str, str] = {}
    before: Mapping[str, str] | None = None
    for key, words, holder, name in _slots(shown, listed):
        value = holder[name]
        if value == KEPT:
            before = known() if before is None else before
            if key not in before:
                raise MissingSecret(f"Type the value of {words}: there is none to be kept for this place.")
            value = before[key]
        secrets[key] = value
        holder[name] = KEPT
    return shown, listed, secrets


def put_back(
    http: Mapping[str, Any], servers: list[Any], secrets: Mapping[str, str]
) -> tuple[dict[str, Any], list[Any]]:
    """The settings as they are used. A value that is not there stays KEPT."""
    used, listed = deepcopy(dict(http)), deepcopy(list(servers))
    for key, _, holder, name in _slots(used, listed):
        holder[name] = secrets.get(key, holder[name])
    return used, listed
