"""The hash of an event covers all that the event says: nothing of a trace can be changed without breaking the chain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from workspaces.domain.events import GENESIS, event_hash

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SAID: dict[str, Any] = {
    "seq": 7,
    "kind": "call.started",
    "branch": 2,
    "step": 3,
    "actor": "11",
    "at": AT,
    "data": {"name": "shell", "arguments": "naïve \N{ROCKET}"},
}


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("seq", 8),
        ("kind", "call.finished"),
        ("branch", 1),
        ("step", None),
        ("actor", ""),
        ("at", AT + timedelta(microseconds=1)),
        ("data", {"name": "shell", "arguments": "naïve"}),
    ],
)
def test_each_thing_that_an_event_says_is_in_its_hash(field: str, other: Any) -> None:
    assert event_hash(GENESIS, **SAID) != event_hash(GENESIS, **(SAID | {field: other}))


def test_the_hash_of_an_event_holds_the_one_before() -> None:
    assert event_hash(GENESIS, **SAID) != event_hash("f" * 64, **SAID)


def test_the_order_of_keys_says_nothing() -> None:
    turned = dict(reversed(SAID["data"].items()))
    assert event_hash(GENESIS, **SAID) == event_hash(GENESIS, **(SAID | {"data": turned}))
