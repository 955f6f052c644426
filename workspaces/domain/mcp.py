"""Servers of the Model Context Protocol as a profile declares them, and what they say of their tools. Pure.

What a server says of itself is not trusted: a definition is used only as it was when a person accepted it, and its
annotations (hints, by the protocol's own words) never make an effect less than the profile says.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal
from urllib.parse import urlsplit

from workspaces.domain.effects import Effect, canonical_json
from workspaces.domain.hidden import Hidden
from workspaces.domain.http_rules import BadRules, one_set, read_number
from workspaces.domain.isolation import BadEntry, allow_entries
from workspaces.domain.schema import schema_problems, show
from workspaces.domain.text import clean_json, clip, too_deep

FIELDS = ("name", "transport", "command", "env", "url", "headers", "tools", "effects", "timeout_s")
SERVER_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")
MOST_SERVERS = 10
MOST_TOOLS = 128  # of one server, of those that the profile's globs let through
MOST_NAME_CHARS = 64  # what every vendor takes
MOST_DESCRIPTION_CHARS = 8_000
MOST_GLOBS = 100
MOST_ARGUMENTS = 100
MOST_S = 3_600.0
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TELLING = 8  # characters of a value of `env` that is no word which any schema may hold
_PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


@dataclass(frozen=True, slots=True)
class McpServer:
    """`effects`: (glob of a tool's name, effect), the first that fits holds. `env` and `headers` hold secrets."""

    name: str
    transport: Literal["stdio", "http"]
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tools: tuple[str, ...] = ("*",)
    effects: tuple[tuple[str, Effect], ...] = ()
    timeout_s: float = 60.0

    @property
    def place(self) -> str:
        """What makes it this server and no other (hex): another address or command is another server."""
        said = canonical_json([self.transport, self.url, list(self.command)])
        return hashlib.sha256(said.encode()).hexdigest()

    @property
    def words(self) -> str:
        return self.url or " ".join(self.command)

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self.headers.values(), *self.env.values())

    @property
    def allow(self) -> tuple[str, ...]:
        """The one place that it may be asked at, as "host:port"."""
        host, port = _place(self.url)
        return (f"{host}:{port}",)

    def lets_through(self, tool: str) -> bool:
        return any(fnmatchcase(tool, glob) for glob in self.tools)

    def effect_of(self, definition: Mapping[str, Any]) -> Effect:
        """The profile's word first. A hint that it only reads is believed of a server elsewhere, for what it costs.

        Of one that runs in the workspace it is not: it could write files there that no snapshot would hold.
        """
        for glob, effect in self.effects:
            if fnmatchcase(str(definition["name"]), glob):
                return effect
        hints = definition.get("annotations") or {}
        if hints.get("readOnlyHint") is True:
            return Effect.NONE if self.transport == "http" else Effect.WORKSPACE
        return Effect.EXTERNAL


def read_mcp_servers(said: Sequence[Any]) -> list[McpServer]:
    """Raises BadRules."""
    if len(said) > MOST_SERVERS:
        raise BadRules("mcp_servers", f"at most {MOST_SERVERS}, not {len(said)}")
    found = [_server(one) for one in said]
    for name, count in Counter(server.name for server in found).items():
        if count > 1:
            raise BadRules("name", f"there are two servers named {name}")
    return found


def _server(said: Any) -> McpServer:
    if not isinstance(said, Mapping):
        raise BadRules("mcp_servers", f"a server is an object, not {show(said)}")
    for unknown in [key for key in said if key not in FIELDS]:
        raise BadRules(str(unknown)[:80], f"is not a field; known are {', '.join(FIELDS)}")
    name, transport = said.get("name"), said.get("transport")
    if not isinstance(name, str) or not SERVER_NAME.fullmatch(name):
        raise BadRules("name", f"must be a small letter, then at most 23 of a-z, 0-9 and -, not {show(name)}")
    if transport == "stdio":
        wrong, own = ("url", "headers"), {"command": _command(said.get("command")), "env": _env(said.get("env", {}))}
    elif transport == "http":
        wrong, own = ("command", "env"), {"url": _url(said.get("url")), "headers": _headers(said)}
    else:
        raise BadRules("transport", f"must be stdio or http, not {show(transport)}")
    for field_name in wrong:
        if field_name in said:
            raise BadRules(field_name, f"is nothing for the transport {transport}")
    return McpServer(
        name=name,
        transport=transport,
        tools=_globs(said.get("tools", ["*"])),
        effects=_effects(said.get("effects", {})),
        timeout_s=read_number(said, "timeout_s", 60.0, MOST_S),
        **own,  # type: ignore[arg-type]
    )


def _command(said: Any) -> tuple[str, ...]:
    fine = isinstance(said, list) and 0 < len(said) <= MOST_ARGUMENTS
    if not fine or not all(isinstance(word, str) and "\x00" not in word for word in said) or not said[0].strip():
        raise BadRules("command", "must be a list of a program and its arguments, all texts")
    return tuple(said)


def _env(said: Any) -> dict[str, str]:
    if not isinstance(said, Mapping) or len(said) > MOST_ARGUMENTS:
        raise BadRules("env", "must be an object of names and texts")
    for name, value in said.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name) or name.startswith("AGENTDESK_"):
            raise BadRules("env", f"{show(name)} cannot be the name of an environment variable here")
        if not isinstance(value, str) or "\x00" in value:
            raise BadRules("env", f"{name} must be a text")
    return dict(said)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def _url(said: Any) -> str:
    refusal = BadRules("url", f"must be an address such as https://mcp.example.com/mcp, not {show(said)}")
    if not isinstance(said, str) or len(said) > 2_000 or re.search(r"[\s\\\x00-\x20\x7f]", said):
        raise refusal
    try:
        parts = urlsplit(said)
        host, port = _place(said)
        allow_entries(f"{host}:{port}")
    except (ValueError, BadEntry):
        raise refusal from None
    if parts.scheme not in ("http", "https") or not host or "*" in host or parts.username is not None or parts.fragment:
        raise refusal
    return said


def _headers(said: Mapping[str, Any]) -> dict[str, str]:
    headers = one_set(said.get("headers", {}), "headers")
    if headers and str(said.get("url", "")).startswith("http://") and urlsplit(said["url"]).port is None:
        raise BadRules("headers", "are secret, and this address is not https; name its port if that is meant")
    return headers


def _globs(said: Any) -> tuple[str, ...]:
    fine = isinstance(said, list) and 0 < len(said) <= MOST_GLOBS
    if not fine or not all(isinstance(glob, str) and 0 < len(glob) <= 200 for glob in said):
        raise BadRules("tools", 'must be a list of names or globs of tools, such as ["read_*"]')
    return tuple(said)


def _effects(said: Any) -> tuple[tuple[str, Effect], ...]:
    if not isinstance(said, Mapping) or len(said) > MOST_GLOBS:
        raise BadRules("effects", "must be an object: {name or glob of a tool: effect}")
    choices = [effect.value for effect in Effect]
    for glob, effect in said.items():
        if not isinstance(glob, str) or not 0 < len(glob) <= 200 or effect not in choices:
            raise BadRules("effects", f"{show(glob)} must be one of {', '.join(choices)}, not {show(effect)}")
    return tuple((glob, Effect(effect)) for glob, effect in said.items())


# --- definitions


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as a server offers it now. `name`: as the model would call it. `problem`: why nobody can."""

    tool: str
    name: str
    definition: Mapping[str, Any]
    fingerprint: str
    problem: str = ""


def offered(server: McpServer, said: Iterable[Mapping[str, Any]]) -> list[Offered]:
    """What the profile lets through of a server's list, each with what is wrong with it."""
    found = []
    hidden, long_ones = Hidden(server.secrets), Hidden(value for value in server.secrets if len(value) >= _TELLING)
    for one in said:
        name = one.get("name")
        if not isinstance(name, str) or not server.lets_through(name):
            continue
        definition = pinned_part(one)
        for key in ("title", "description"):
            if isinstance(definition.get(key), str):
                definition[key] = hidden.off(definition[key])
        problem = definition_problem(definition)
        if not problem and long_ones.is_in(canonical_json(definition)):
            problem = "it repeats a secret of the server"
        called = f"{server.name}__{re.sub(r'[^a-zA-Z0-9_-]', '_', name)}"
        if not problem and len(called) > MOST_NAME_CHARS:
            problem = f"its name is longer than {MOST_NAME_CHARS} characters with the server's"
        if problem:
            definition = {
                "name": hidden.off(clip(clean_json(name), 200))
            }  # nothing of it is kept that could not be used
        found.append(Offered(clip(clean_json(name), 200), called, definition, fingerprint(definition), problem))
    often = Counter(one.name.casefold() for one in found if not one.problem)
    return [
        Offered(one.tool, one.name, one.definition, one.fingerprint, "another of its tools would have the same name")
        if not one.problem and often[one.name.casefold()] > 1
        else one
        for one in found
    ]


def pinned_part(said: Mapping[str, Any]) -> dict[str, Any]:
    """What a definition is known by: all that reaches the model or decides an effect."""
    return {key: said[key] for key in _PINNED if said.get(key) is not None}


def fingerprint(definition: Mapping[str, Any]) -> str:
    """SHA-256 (hex)."""
    return hashlib.sha256(canonical_json(dict(definition)).encode()).hexdigest()


def definition_problem(definition: Mapping[str, Any]) -> str:
    """Why this cannot be a tool's definition here, or an empty text."""
    if too_deep(dict(definition)):
        return "it is nested too deeply"
    if clean_json(dict(definition)) != dict(definition):
        return "it holds a NUL character or half of a surrogate pair"
    try:
        canonical_json(dict(definition))
    except ValueError:
        return "it holds a number that is none"
    if _hides(str(definition["name"]), allowed="") or not definition["name"].strip():
        return "its name holds characters that are not to be seen"
    text = f"{definition.get('title', '')}{definition.get('description', '')}"
    if len(text) > MOST_DESCRIPTION_CHARS:
        return f"its description has {len(text)} characters, more than {MOST_DESCRIPTION_CHARS}"
    if _hides(text, allowed="\n\r\t"):
        return "its description holds characters that are not to be seen"
    problems = schema_problems(definition.get("inputSchema"))
    return f"its schema: {problems[0]}" if problems else ""


def _hides(text: str, *, allowed: str) -> bool:
    """Control and format characters, also those that only a model reads (U+E0000 and on)."""
    return any(unicodedata.category(char) in ("Cc", "Cf", "Co") and char not in allowed for char in text)


def shown(definition: Mapping[str, Any]) -> str:
    """One definition as lines, for a diff."""
    return json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
