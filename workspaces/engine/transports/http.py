"""One POST to an address that somebody else chose and serves: guarded, bounded in time and bytes, never redirected.

Webhooks and chats share it. What a receiver says is kept up to a few kilobytes, and never trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import anyio
import httpx2

from agentdesk.scrub import scrub
from workspaces.domain.endpoints import AttemptOutcome as Out
from workspaces.domain.hidden import Hidden
from workspaces.domain.sending import outcome_of, retry_after_s, words_of
from workspaces.domain.text import clean_text, clip
from workspaces.tools.http import port_of, read_url
from workspaces.wire.guarded import Guard, NotAllowed, TooLarge, Wire, bounded_body, guarded_client

from .base import CONNECT_S, KEPT_BYTES, TOTAL_S, NotSent, Sent

HEADERS_KEPT = ("content-type", "content-length", "location", "retry-after", "server", "date", "x-request-id")
HEADER_CHARS = 300
MOST_READ_BYTES = 256 * 1024  # of everything that a receiver says, its headers too
BODY_S = 2.0  # a verdict stands in the status: what follows is only looked at
_BROKEN = (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError, OSError)


async def post(
    address: str, body: bytes, headers: Mapping[str, str], *, private: Iterable[str], hidden: Iterable[str] = ()
) -> Sent:
    """Raises NotSent, for every status but 2xx as well. `hidden`: what is taken out of what comes back."""
    url = read_url(address)
    if isinstance(url, str):
        raise NotSent(f"The address {url}.", Out.FORBIDDEN)
    place = f"{url.host}:{port_of(url)}"
    guard = _guard(url, place, tuple(private))
    wire = Wire(most_read_bytes=MOST_READ_BYTES)
    veil = Hidden([*hidden, url.raw_path.decode("latin-1")] if len(url.raw_path) > 8 else hidden)
    try:
        async with asyncio.timeout(TOTAL_S):
            return await _posted(url, body, dict(headers), guard, wire, veil)
    except NotAllowed as error:
        raise NotSent(_sentence(str(error)), Out.FORBIDDEN, heard=Sent(address=wire.address)) from None
    except TimeoutError:
        raise NotSent(f"{place} did not answer within {TOTAL_S:g} s.", Out.TIMEOUT, heard=_told(wire)) from None
    except httpx2.TimeoutException as error:
        doing = "could not be connected to" if isinstance(error, httpx2.ConnectTimeout) else "did not answer"
        raise NotSent(f"{place} {doing} in time.", Out.TIMEOUT, heard=_told(wire)) from None
    except TooLarge:
        raise NotSent(f"{place} says more than it may.", Out.CONNECTION, heard=_told(wire)) from None
    except _BROKEN as error:
        if wire.refused:
            raise NotSent(_sentence(wire.refused), Out.FORBIDDEN, heard=_told(wire)) from None
        said = veil.off(scrub(clean_text(clip(str(error) or type(error).__name__, HEADER_CHARS))))
        raise NotSent(f"{place}: {said}", Out.CONNECTION, heard=_told(wire)) from None


def _guard(url: httpx2.URL, place: str, private: tuple[str, ...]) -> Guard:
    """Without TLS only the site's own networks are reached: a message holds links that let people act."""
    if url.scheme == "https":
        return Guard([place], private)
    if not private:
        raise NotSent("The address must begin with https://.", Out.FORBIDDEN)
    return Guard([place], private, only_private=True)


async def _posted(
    url: httpx2.URL, body: bytes, headers: dict[str, str], guard: Guard, wire: Wire, veil: Hidden
) -> Sent:
    # identity: nothing that a receiver packed is unpacked here but the few kilobytes that are kept
    sent = {"Accept-Encoding": "identity", "Accept": "*/*", "User-Agent": "agentdesk", "Connection": "close", **headers}
    async with guarded_client(guard, wire, read_s=TOTAL_S, connect_s=CONNECT_S) as client:
        response = await client.send(client.build_request("POST", url, headers=sent, content=body), stream=True)
        try:
            said = b""
            with contextlib.suppress(TimeoutError, TooLarge, *_BROKEN):
                async with asyncio.timeout(BODY_S):
                    said, _ = await bounded_body(response, KEPT_BYTES)
        finally:
            with contextlib.suppress(*_BROKEN):
                await response.aclose()
    heard = Sent(
        address=wire.address,
        request_headers={name: _shown(name, value) for name, value in sent.items()},
        status=response.status_code,
        response_headers={
            name: veil.off(scrub(clean_text(clip(response.headers[name], HEADER_CHARS))))
            for name in HEADERS_KEPT
            if name in response.headers
        },
        response_body=_kept(said, veil),
    )
    outcome = outcome_of(response.status_code)
    if outcome is Out.DELIVERED:
        return heard
    asked = retry_after_s(response.headers.get("retry-after", ""), datetime.now(UTC))
    raise NotSent(words_of(response.status_code), outcome, heard=heard, retry_after_s=asked)


def _told(wire: Wire) -> Sent:
    return Sent(address=wire.address, status=wire.status or None)


def _kept(said: bytes, veil: Hidden) -> str:
    text = clean_text(veil.off_bytes(said, cut=len(said) >= KEPT_BYTES).decode("utf-8", "replace"))
    return clip(veil.off(scrub(text)), KEPT_BYTES)


def _shown(name: str, value: str) -> str:
    """A signature is no secret, but whoever has it could send the message again for some minutes."""
    if name.lower() != "webhook-signature":
        return value
    return " ".join(f"{one.partition(',')[0]},…" for one in value.split(" "))


def _sentence(text: str) -> str:
    return f"Nothing was sent: {text}."
