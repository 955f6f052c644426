"""Turns DATABASE_URL and VALKEY_URL into what each library wants. Opens no connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from agentdesk.environment import SettingError

EMBEDDED_NAME = "agentdesk"  # the embedded server's database and role
POSTGRES_PORT = 5432  # names the socket's file only: the embedded server listens on no port


def embedded_database_url(run: Path) -> str:
    return f"postgresql://{EMBEDDED_NAME}@/{EMBEDDED_NAME}?host={quote(str(run))}"


def embedded_valkey_url(run: Path) -> str:
    return f"unix://{quote(str(run / 'valkey.sock'))}"


def django_database(url: str) -> dict[str, Any]:
    """NAME, USER, PASSWORD, HOST, PORT and OPTIONS. What follows `?` goes to libpq (sslmode, host, …)."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise SettingError(
            f"DATABASE_URL starts with {parts.scheme!r}; expected postgresql://user:password@host:5432/name"
        )
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise SettingError("DATABASE_URL names no database; expected postgresql://user:password@host:5432/name")
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    try:
        port = str(parts.port or "")
    except ValueError:
        raise SettingError("DATABASE_URL has a port that is not a number") from None
    return {
        "ENGINE": "agentdesk.database",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": port,
        "OPTIONS": options,
    }


def client_url(valkey_url: str) -> str:
    """The address as the redis client reads it."""
    scheme, separator, rest = valkey_url.partition("://")
    known = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
    if not separator or scheme not in known:
        raise SettingError("VALKEY_URL is not an address; expected redis://host:6379/0 or unix:///path/to/socket")
    return f"{known[scheme]}://{rest}"


def broker_url(valkey_url: str) -> str:
    """The address as Celery reads it: a socket is `redis+socket:///path` there."""
    url = client_url(valkey_url)
    return f"redis+socket://{url.removeprefix('unix://')}" if url.startswith("unix://") else url
