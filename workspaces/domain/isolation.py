"""What separates a workspace's sandbox from the rest: its network and its runtime, and what the site allows. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

DEFAULT_PORTS = (80, 443)
MOST_ENTRIES = 100
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")


class NetworkMode(StrEnum):
    """From closed to open."""

    NONE = "none"
    ALLOWLIST = "allowlist"  # through a proxy that knows the hosts and ports
    OPEN = "open"  # whatever the engine's machine reaches


class Runtime(StrEnum):
    """From a shared kernel to one apart."""

    RUNC = "runc"
    RUNSC = "runsc"  # gVisor: a kernel in user space
    KATA = "kata"  # a virtual machine


NETWORKS = tuple(NetworkMode)
RUNTIMES = tuple(Runtime)


class BadEntry(ValueError):
    """A line of an allow-list that names no host and port. The text says why."""


def offered_networks(site_most: str) -> list[NetworkMode]:
    """What may be chosen where the site allows at most `site_most`."""
    return list(NETWORKS[: NETWORKS.index(NetworkMode(site_most)) + 1])


def network_of(chosen: str, site_most: str) -> NetworkMode:
    """What holds: the site may have become stricter since it was chosen."""
    return min(NetworkMode(chosen), NetworkMode(site_most), key=NETWORKS.index)


def offered_runtimes(site_least: str) -> list[Runtime]:
    return list(RUNTIMES[RUNTIMES.index(Runtime(site_least)) :])


def runtime_of(chosen: str, site_least: str) -> Runtime:
    return max(Runtime(chosen), Runtime(site_least), key=RUNTIMES.index)


def engine_runtime(wanted: str, offered: Iterable[str]) -> str | None:
    """The engine's name for a runtime: `kata` may be called kata-runtime or io.containerd.kata.v2 there."""
    names = sorted(offered, key=len)
    if wanted in names:
        return wanted
    return next((name for name in names if wanted != Runtime.RUNC.value and wanted in re.split(r"[.\-]", name)), None)


def allow_entries(text: str) -> list[str]:
    """The lines of an allow-list as "host:port", sorted, each once; a host without a port is allowed 80 and 443.

    `*.example.com` allows every name below example.com, not that name itself. Raises BadEntry.
    """
    found: set[str] = set()
    for line in re.split(r"[\s,]+", text.strip()):
        if line:
            host, ports = _entry(line)
            found |= {f"{host}:{port}" for port in ports}
    if len(found) > MOST_ENTRIES:
        raise BadEntry(f"The list has {len(found)} entries; it may have {MOST_ENTRIES}.")
    return sorted(found)


def _entry(line: str) -> tuple[str, Sequence[int]]:
    if "/" in line:
        raise BadEntry(f"{line[:80]} is no host: write example.com, without http:// or a path.")
    host, colon, port = line.lower().rstrip(".").rpartition(":")
    if not colon:
        host, port = port, ""
    name = host.removeprefix("*.")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadEntry(f"{line[:80]} names no port between 1 and 65535.")
    if not name or len(name) > 253 or not all(_LABEL.match(label) for label in name.split(".")):
        raise BadEntry(f"{line[:80]} is no host: write example.com, example.com:8443 or *.example.com.")
    if host.startswith("*.") and (_is_address(name) or "." not in name):
        raise BadEntry(f"{line[:80]} allows too much: name at least a domain, as in *.example.com.")
    return host, (int(port),) if port else DEFAULT_PORTS


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
