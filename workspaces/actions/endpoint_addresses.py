"""Whether an address may be an endpoint's: as it is written, and as far as its name resolves now. Connects nowhere.

It is no promise: whoever sends judges again what is connected to (wire/guarded.py), as name servers change their minds.
"""

from __future__ import annotations

import asyncio
import ipaddress

import httpx2
from django.conf import settings

from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.mail import address_problem
from workspaces.tools.http import port_of, read_url
from workspaces.wire.guarded import Guard, NotAllowed

from .errors import Refused

LONGEST_CHARS = 2_000
RESOLVE_S = 5.0
_ONLY_THE_SITE = "Only this site's administrator can allow one, by AGENTDESK_WEBHOOK_PRIVATE."
_HTTPS = "The address must begin with https:// : what is sent holds links that let people act."


def read_address(kind: EndpointKind, text: str) -> str:
    """The address as it is kept. Raises Refused with what is wrong with it. Resolves no name."""
    text = text.strip()
    if not text:
        raise Refused("Say where it is sent to.")
    if len(text) > LONGEST_CHARS:
        raise Refused(f"The address has {len(text):,} characters; at most {LONGEST_CHARS:,} are taken.")
    if kind is EndpointKind.EMAIL:
        if problem := address_problem(text):
            raise Refused(f"{problem[0].upper()}{problem[1:]}.")
        return text
    url = read_url(text)
    if isinstance(url, str):
        raise Refused(f"The address {url}.")
    if url.scheme == "http" and not settings.WEBHOOK_PRIVATE:
        raise Refused(_HTTPS)
    number = _number(url.host)
    if number is not None:
        _judge(url, str(number))
    return str(url)


def check_reachable(address: str) -> None:
    """Raises Refused where the name does not resolve, or leads to where nothing may be sent."""
    url = httpx2.URL(address)
    if _number(url.host) is not None:
        return
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_resolve_and_judge(url))
    finally:
        loop.close()  # unlike asyncio.run it does not wait for a name server that never answers


async def _resolve_and_judge(url: httpx2.URL) -> None:
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await _guard(url).addresses(url.host, port_of(url))
    except NotAllowed:
        raise Refused(f"{url.host} leads to an address inside a private network. {_ONLY_THE_SITE}") from None
    except TimeoutError:
        raise Refused(f"The name {url.host} was not resolved within {RESOLVE_S:g} s. Is it spelled right?") from None
    except (OSError, UnicodeError):
        raise Refused(f"The name {url.host} does not resolve. Is it spelled right?") from None
    for address in found:
        _judge(url, address)


def _judge(url: httpx2.URL, address: str) -> None:
    try:
        _guard(url).check_address(url.host, port_of(url), address)
    except NotAllowed:
        raise Refused(f"{address} is an address inside a private network. {_ONLY_THE_SITE}") from None
    if url.scheme == "http" and not _within(address):
        raise Refused(_HTTPS)


def _guard(url: httpx2.URL) -> Guard:
    return Guard([f"{url.host}:{port_of(url)}"], settings.WEBHOOK_PRIVATE)


def _within(address: str) -> bool:
    number = ipaddress.ip_address(address)
    networks = [ipaddress.ip_network(network) for network in settings.WEBHOOK_PRIVATE]
    return any(number in network for network in networks if network.version == number.version)


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def shown_address(address: str) -> str:
    """Of a URL that is a secret in itself: its host, and enough of its end to tell it from others."""
    url = httpx2.URL(address)
    end = address[-4:] if len(url.raw_path) >= 16 else ""
    return f"{url.scheme}://{url.netloc.decode('ascii')}/…{end}"
