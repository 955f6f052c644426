"""Networks, runtimes, allow-lists and placement: what holds and what is offered."""

from __future__ import annotations

import pytest

from workspaces.domain.isolation import (
    BadEntry,
    NetworkMode,
    Runtime,
    allow_entries,
    engine_runtime,
    network_of,
    offered_networks,
    offered_runtimes,
    runtime_of,
)
from workspaces.domain.placement import Room, roomiest


def test_the_order_of_networks_and_runtimes() -> None:
    assert offered_networks("none") == [NetworkMode.NONE]
    assert offered_networks("open") == list(NetworkMode)
    assert network_of("open", "allowlist") is NetworkMode.ALLOWLIST
    assert network_of("none", "open") is NetworkMode.NONE
    assert offered_runtimes("runsc") == [Runtime.RUNSC, Runtime.KATA]
    assert runtime_of("runc", "kata") is Runtime.KATA
    assert runtime_of("kata", "runc") is Runtime.KATA


@pytest.mark.parametrize(
    ("wanted", "offered", "name"),
    [
        ("runc", ["io.containerd.runc.v2", "runc"], "runc"),
        ("runsc", ["runc"], None),
        ("runsc", ["runc", "runsc"], "runsc"),
        ("kata", ["runc", "kata-runtime"], "kata-runtime"),
        ("kata", ["runc", "io.containerd.kata.v2"], "io.containerd.kata.v2"),
        ("runc", [], None),
    ],
)
def test_the_engines_name_of_a_runtime(wanted: str, offered: list[str], name: str | None) -> None:
    assert engine_runtime(wanted, offered) == name


@pytest.mark.parametrize("line", ["*", "*.*.com", "a b:x", "-a.com", "a..b", "*.1.2.3.4", "x" * 300, "a:0", "a/b"])
def test_what_is_no_host_is_told(line: str) -> None:
    with pytest.raises(BadEntry):
        allow_entries(line)


def test_a_list_has_an_end() -> None:
    with pytest.raises(BadEntry, match="102 entries"):
        allow_entries(" ".join(f"h{number}.example.com:1" for number in range(102)))


def test_a_host_without_a_port_is_allowed_two_and_each_entry_stands_once() -> None:
    assert allow_entries("b.com:1, A.com a.com:443\n*.c.com:9") == ["*.c.com:9", "a.com:443", "a.com:80", "b.com:1"]
    assert allow_entries(" \n ") == []


def test_the_roomiest_node_with_the_runtime_is_chosen() -> None:
    rooms = [
        Room("a", 8, 6, frozenset({"runc"})),
        Room("b", 4, 1, frozenset({"runc"})),
        Room("c", 9, 8, frozenset({"runsc"})),
    ]
    assert roomiest(rooms, 1, "runc") == "b"
    assert roomiest(rooms, 100, "runc") == "b"
    assert roomiest(rooms, 1, "runsc") == "c"
    assert roomiest(rooms, 1, "kata") is None
    assert roomiest([], 1, "runc") is None
