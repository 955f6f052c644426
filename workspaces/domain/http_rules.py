"""What a profile says about HTTP requests: where to, how, how much, and with which effect. Pure.

Effects follow the method (RFC 9110, 9.2.1: GET, HEAD and OPTIONS are safe); a profile may say otherwise for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workspaces.domain.effects import Effect
from workspaces.domain.isolation import BadEntry, allow_entries
from workspaces.domain.schema import show

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
READS = ("GET", "HEAD", "OPTIONS")
FIELDS = (
    "allow",
    "methods",
    "effects",
    "headers",
    "timeout_s",
    "max_request_bytes",
    "max_response_bytes",
    "redirects",
)
MOST_BYTES = 50 * 1024 * 1024
MOST_REDIRECTS = 10
MOST_S = 600.0
MOST_HEADERS = 20
MAX_VALUE_CHARS = 8_000
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
NOT_SET = frozenset(
    (
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"),
        *("expect", "proxy-authorization", "proxy-connection", "accept-encoding", "idempotency-key"),
    )
)


class BadRules(ValueError):
    """`field` names the part to change."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class HttpRules:
    """`allow`: "host:port" or "*.domain:port". `headers`: place (as in the list) → name → value, sent only there."""

    allow: tuple[str, ...] = ()
    methods: tuple[str, ...] = READS
    effects: Mapping[str, Effect] = field(default_factory=dict)
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    timeout_s: float = 30.0
    max_request_bytes: int = 1024 * 1024
    max_response_bytes: int = 5 * 1024 * 1024
    redirects: int = 0

    def effect_of(self, method: str) -> Effect:
        return self.effects.get(method, Effect.NONE if method in READS else Effect.EXTERNAL)

    @property
    def worst(self) -> Effect:
        """The worst effect that any of its methods has."""
        return max((self.effect_of(method) for method in self.methods), key=list(Effect).index)

    def headers_for(self, scheme: str, host: str, port: int) -> dict[str, str]:
        """What the profile adds to a request. A place without a port is meant for https only: these are secrets."""
        found: dict[str, str] = {}
        for place, values in self.headers.items():
            name, _, wanted = place.partition(":")
            fits = host == name or (name.startswith("*.") and host.endswith(name[1:]))
            if fits and (port == int(wanted) if wanted else scheme == "https"):
                found |= values
        return found

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for values in self.headers.values() for value in values.values())


def read_http_rules(said: Mapping[str, Any]) -> HttpRules:
    """FIELDS, of which `allow` must be there. Raises BadRules."""
    for unknown in [key for key in said if key not in FIELDS]:
        raise BadRules(str(unknown)[:80], f"is not a field; known are {', '.join(FIELDS)}")
    places = said.get("allow")
    if not isinstance(places, list) or not places or not all(isinstance(place, str) for place in places):
        raise BadRules("allow", "must be a list of hosts, such as api.example.com, host:8443 or *.example.com")
    try:
        allow = tuple(allow_entries(" ".join(places)))
    except BadEntry as error:
        raise BadRules("allow", str(error)) from None
    if not allow:
        raise BadRules("allow", "names no host")
    methods = _methods(said.get("methods", list(READS)))
    return HttpRules(
        allow=allow,
        methods=methods,
        effects=_effects(said.get("effects", {}), methods),
        headers=read_headers(said.get("headers", {}), {place.lower().rstrip(".") for place in places}),
        timeout_s=read_number(said, "timeout_s", 30.0, MOST_S),
        max_request_bytes=int(read_number(said, "max_request_bytes", 1024 * 1024, MOST_BYTES)),
        max_response_bytes=int(read_number(said, "max_response_bytes", 5 * 1024 * 1024, MOST_BYTES)),
        redirects=_redirects(said.get("redirects", 0)),
    )


def header_problem(name: Any, value: Any) -> str:
    """Why this header cannot be sent, or an empty text. A line end in it would be a second header, or a request."""
    if not isinstance(name, str) or not TOKEN.fullmatch(name):
        return "is not a header's name"
    if name.lower() in NOT_SET or name.lower().startswith("proxy-"):
        return "is set by the request itself"
    if not isinstance(value, str) or len(value) > MAX_VALUE_CHARS or not _VALUE.fullmatch(value):
        return f"must be a text of one line in Latin-1, at most {MAX_VALUE_CHARS} characters"
    return ""


def read_headers(said: Any, places: set[str]) -> dict[str, dict[str, str]]:
    """Raises BadRules. No message holds a value."""
    if not isinstance(said, Mapping):
        raise BadRules("headers", "must be an object: {host as in the list: {name: value}}")
    found: dict[str, dict[str, str]] = {}
    for place, values in said.items():
        if not isinstance(place, str) or place.lower().rstrip(".") not in places:
            raise BadRules("headers", f"{show(place)} does not stand in the list of hosts")
        found[place.lower().rstrip(".")] = one_set(values, "headers")
    return found


def one_set(values: Any, where: str) -> dict[str, str]:
    """Names and values of one set of headers. Raises BadRules."""
    if not isinstance(values, Mapping) or len(values) > MOST_HEADERS:
        raise BadRules(where, f"must be an object of at most {MOST_HEADERS} names and values")
    for name, value in values.items():
        problem = header_problem(name, value)
        if problem:
            raise BadRules(where, f"{show(name)} {problem}")
    return dict(values)


def read_number(said: Mapping[str, Any], name: str, otherwise: float, most: float) -> float:
    """Raises BadRules."""
    value = said.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise BadRules(name, f"must be a number, more than 0 and at most {most:g}")
    return float(value)


def _methods(said: Any) -> tuple[str, ...]:
    if not isinstance(said, list) or not said or not all(isinstance(item, str) for item in said):
        raise BadRules("methods", f"must be a list of some of {', '.join(METHODS)}")
    given = {item.upper() for item in said}
    for unknown in sorted(given - set(METHODS)):
        raise BadRules("methods", f"{show(unknown)} is none of {', '.join(METHODS)}")
    return tuple(method for method in METHODS if method in given)


def _effects(said: Any, methods: tuple[str, ...]) -> dict[str, Effect]:
    if not isinstance(said, Mapping):
        raise BadRules("effects", "must be an object: {method: effect}")
    choices = [effect.value for effect in Effect]
    found = {}
    for method, effect in said.items():
        if not isinstance(method, str) or method.upper() not in methods:
            raise BadRules("effects", f"{show(method)} is none of the methods {', '.join(methods)}")
        if effect not in choices:
            raise BadRules("effects", f"{method} must be one of {', '.join(choices)}, not {show(effect)}")
        found[method.upper()] = Effect(effect)
    return found


def _redirects(said: Any) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said <= MOST_REDIRECTS:
        raise BadRules("redirects", f"must be how many are followed, 0 to {MOST_REDIRECTS}")
    return said
