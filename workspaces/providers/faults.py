"""What went wrong with a request, in our words: kind, permanent or passing, when to ask again.

Knows no vendor. No message made here holds a key: what a server echoes is scrubbed.
"""

from __future__ import annotations

import contextlib
import html
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from workspaces.domain import rate_headers
from workspaces.domain.text import clean_text, clip
from workspaces.providers.base import ProviderConfig, ProviderError

_DETAIL_CHARS = 400
_MOST_TOKENS = 1_000_000_000

# The vendors' own names of errors (`error.type`, `error.code`), where they say more than the status.
_BY_WORD = {
    "insufficient_quota": ("rate_limit", True),
    "billing_error": ("auth", True),
    "rate_limit_error": ("rate_limit", False),
    "rate_limit_exceeded": ("rate_limit", False),
    "tokens": ("rate_limit", False),
    "requests": ("rate_limit", False),
    "overloaded_error": ("overloaded", False),
    "api_error": ("server", False),
    "server_error": ("server", False),
    "internal_error": ("server", False),
    "timeout_error": ("timeout", False),
    "authentication_error": ("auth", True),
    "permission_error": ("auth", True),
    "invalid_api_key": ("auth", True),
    "not_found_error": ("not_found", True),
    "model_not_found": ("not_found", True),
    "request_too_large": ("context_length", True),
    "context_length_exceeded": ("context_length", True),
    "exceed_context_size_error": ("context_length", True),
    "invalid_request_error": ("bad_request", True),
}
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)|maximum context|prompt is too long|too many tokens"
    r"|exceeds? the (available )?context",
    re.IGNORECASE,
)
_CAUSES = {
    "auth": "the key was refused",
    "not_found": "no such model or path",
    "bad_request": "the request was refused",
    "context_length": "the request is larger than the model's context",
    "rate_limit": "the rate limit is reached",
    "overloaded": "the provider is overloaded",
    "server": "the provider failed",
    "timeout": "the provider gave up waiting",
}


def address(base_url: str) -> str:
    """Host and port, for messages: never a path, a query or a password."""
    try:
        parts = urlsplit(base_url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the provider"
    return f"{parts.hostname}{port}" if parts.hostname else "the provider"


def host(base_url: str) -> str:
    """The host name, "" where there is none."""
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def checked_url(base_url: str) -> str:
    """`base_url` as it is. Raises a permanent ProviderError when no request can be sent there."""
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits:
        raise ProviderError(
            "The base URL of the provider is not a web address: it must begin with http:// or https://",
            kind="bad_request",
            permanent=True,
        )
    return base_url


def checked_key(config: ProviderConfig, where: str) -> str:
    """The key, stripped. One with unsendable characters is refused here: HTTP libraries quote it."""
    key = config.api_key.strip()
    if any(not 33 <= ord(char) <= 126 for char in key):
        raise ProviderError(
            f"{where}: the key holds characters that no key has (spaces, line breaks); paste it again",
            kind="auth",
            permanent=True,
        )
    return key


def secrets_of(config: ProviderConfig) -> tuple[str, ...]:
    """Everything in a config that must not be repeated: the key, and headers and passwords set by hand."""
    headers = config.options.get("headers")
    values = [config.api_key, config.api_key.strip()]
    if isinstance(headers, Mapping):
        values += [str(value) for value in headers.values()]
    with contextlib.suppress(ValueError):
        values.append(urlsplit(config.base_url).password or "")
    return tuple(sorted({value for value in values if len(value) >= 4}, key=len, reverse=True))


def scrub(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, also where a server masked their middle (`sk-ab***yz`) or cut their end."""
    for secret in secrets:
        text = text.replace(secret, "[key]")
        if len(secret) >= 24:
            text = re.sub(re.escape(secret[:10]) + r"[A-Za-z0-9_-]*", "[key]", text)
        if len(secret) >= 12:
            text = re.sub(re.escape(secret[:3]) + r"\S*\*{2,}\S*", "[key]", text)
    return text


def refusal(
    where: str,
    *,
    status: int | None,
    body: object,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
) -> ProviderError:
    """The error that a provider answered with, by status, or by the body alone in the middle of a stream."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    words: list[str] = []
    detail = error if isinstance(error, str) else ""
    if isinstance(error, Mapping):
        words = [str(error.get("code") or ""), str(error.get("type") or "")]
        detail = str(error.get("message") or error.get("detail") or error)
        code = error.get("code")
        if (status is None or status < 300) and isinstance(code, int) and 400 <= code < 600:
            status = code
    if status is not None and status < 300:
        status = None
    kind, permanent = _judge(status, words, detail)
    cause = _CAUSES[kind]
    if kind == "rate_limit" and permanent:
        cause = "the account has no credit or quota left"
    detail = clip(" ".join(scrub(_without_markup(clean_text(detail)), secrets).split()), _DETAIL_CHARS)
    said = f" (HTTP {status})" if status else ""
    rate = rate_headers.read(headers) if headers is not None else None
    return ProviderError(
        f"{where}: {cause}{said}" + (f": {detail}" if detail else ""),
        kind=kind,
        permanent=permanent,
        retry_after_s=rate.retry_after_s if rate else None,
        status=status,
        rate=rate,
    )


def _without_markup(detail: str) -> str:
    """A web page instead of an API's answer is named, by its title: its markup says nothing to anybody."""
    if not re.match(r"\s*<(!doctype|html|head|\?xml)\b", detail, re.IGNORECASE):
        return detail
    title = re.search(r"<title[^>]*>(.{1,2000}?)</title>", detail, re.IGNORECASE | re.DOTALL)
    named = f" titled “{html.unescape(title[1]).strip()}”" if title else ""
    return f"it answered with a web page{named}; is the base URL right? Most end in /v1"


def _judge(status: int | None, words: Iterable[str], detail: str) -> tuple[str, bool]:
    named = [_BY_WORD[word] for word in words if word in _BY_WORD]
    if (status in (None, 400, 413, 422, 500)) and _TOO_LONG.search(detail):
        return "context_length", True
    if status is None:
        return named[0] if named else ("server", False)
    if status == 429:
        return ("rate_limit", True) if ("rate_limit", True) in named else ("rate_limit", False)
    by_status = {
        401: ("auth", True),
        402: ("auth", True),
        403: ("auth", True),
        404: ("not_found", True),
        408: ("timeout", False),
        409: ("server", False),
        413: ("context_length", True),
        503: ("overloaded", False),
        504: ("timeout", False),
        529: ("overloaded", False),
    }
    if status in by_status:
        return by_status[status]
    if status >= 500:
        return ("overloaded", False) if ("overloaded", False) in named else ("server", False)
    refined = [pair for pair in named if pair[0] in ("context_length", "not_found", "auth")]
    return refined[0] if refined else ("bad_request", True)


def unreachable(where: str, error: BaseException) -> ProviderError:
    """No answer, or one that broke off."""
    cause = "the connection broke off before the reply was complete"
    for link in _chain(error):
        name = type(link).__name__
        if isinstance(link, socket.gaierror):
            cause = "the host name cannot be found"
        elif isinstance(link, ConnectionRefusedError) or "Connection refused" in str(link):
            cause = "the connection was refused; is a server listening there?"
        elif isinstance(link, ssl.SSLError):
            cause = f"no secure connection ({link.reason or 'TLS failed'}); is the address right, http or https?"
        elif "ConnectTimeout" in name:
            cause = "no connection in time"
        elif isinstance(link, OSError) and "unreachable" in str(link).lower():
            cause = "the network is unreachable"
        elif name == "ConnectError":
            cause = "cannot connect"
            continue
        else:
            continue
        break
    return ProviderError(f"{where}: {cause}", kind="connection", permanent=False)


def too_slow(where: str, timeout_s: float) -> ProviderError:
    return ProviderError(f"{where}: no complete reply within {timeout_s:g} s", kind="timeout", permanent=False)


def unreadable(where: str, what: str) -> ProviderError:
    return ProviderError(f"{where}: the reply cannot be read: {what}", kind="malformed", permanent=False)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The innermost causes last-in-first-out: the root says more than its wrappers."""
    links: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo and len(links) < 30:
        link = todo.pop()
        if link is None or any(link is known for known in links):
            continue
        links.append(link)
        todo += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            todo += list(link.exceptions)
    yield from reversed(links)


def count(value: Any) -> int:
    """A token count as told by a server: anything that is not a whole number from 0 to a thousand million is 0."""
    plausible = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS
    return value if plausible else 0
