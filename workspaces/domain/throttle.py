"""How long somebody who guesses passwords, or the tokens of links, has to wait. Pure.

Three counters, each of tries without a success: of a name from one address, of a name from anywhere, of an address
with any name. The wait doubles with each try beyond the free ones. A whole office behind one address, and a person
whose name a stranger is guessing, wait little: those counters are patient and their waits short.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

WINDOW_S = 3_600  # after this long without a try a counter begins anew


@dataclass(frozen=True, slots=True)
class Patience:
    free: int  # tries that cost nothing
    longest_s: int


PATIENCE = {
    "name and address": Patience(free=5, longest_s=900),
    "name": Patience(free=30, longest_s=60),
    "address": Patience(free=100, longest_s=300),
    "links": Patience(free=20, longest_s=300),  # tokens from an address that are none
}


def wait_s(tries: int, patience: Patience) -> int:
    """Seconds until the next try is taken, after that many without a success."""
    beyond = tries - patience.free
    if beyond < 0:
        return 0
    return min(2 ** min(beyond + 1, 20), patience.longest_s)


def counted_address(text: str) -> str:
    """What one person has at least: of IPv6 a whole /64, in which each try could come from another address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text  # a socket's peer has none
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
