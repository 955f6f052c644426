"""Texts that an agent, a server or a model may send to make a worker stand still: every rule reads them in short time.

Python's own matcher lets nothing else run meanwhile, not even the thread that renews the task's lease.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from tests.corpus.traces import trail_of
from workspaces.domain.calls_in_text import find_calls
from workspaces.domain.claims import claims_in
from workspaces.domain.classify import is_hollow
from workspaces.domain.detectors import find
from workspaces.domain.incidents import IncidentKind
from workspaces.domain.paralysis import things_of
from workspaces.domain.results import ResultClass
from workspaces.domain.sameness import alike, cosmetics_off, steady
from workspaces.domain.seen import _of_arguments, _of_result, asks_to_wait
from workspaces.domain.thresholds import Thresholds

CHARS = 100_000
PIECES = (
    *(
        "a",
        " ",
        "\n",
        "1",
        ".",
        "-",
        "/",
        "`",
        '"',
        "'",
        "{",
        "[",
        "\\",
        "“",
        "«",
        "~~~",
        "tests ",
        "- ",
        "{ ",
        "1.",
        "a/",
    ),
    *("was successfully ", "i have ", "then ", "sed ", '"\\', "tmpa", "[result: ", "12:00 ", "0x", "é ", "_a", "`` "),
)
READERS = {
    "claims": claims_in,
    "calls": lambda text: find_calls("{" + text, False, frozenset({"shell"})),
    "calls at the end": lambda text: find_calls(text + "{", False, frozenset({"shell"})),
    "waiting": asks_to_wait,
    "things": things_of,
    "hollow": is_hollow,
    "steady": lambda text: steady(text[:6_000]),
    "cosmetics": cosmetics_off,
    "alike": lambda text: alike(text, text + "b"),
    "result": lambda text: _of_result(ResultClass.OK, text, "hash"),
    "arguments": lambda text: _of_arguments("shell", json.dumps({"command": text})),
}


@pytest.mark.parametrize("reader", READERS)
def test_no_text_makes_a_rule_take_long(reader: str) -> None:
    """Seconds, of which it takes less than one: what is quadratic takes minutes."""
    for piece in PIECES:
        began = time.process_time()
        READERS[reader]((piece * (CHARS // len(piece) + 1))[:CHARS] + "!")
        assert time.process_time() - began < 5, f"{reader} takes too long on {piece!r}"


def test_arguments_nested_past_all_bounds_hide_no_loop() -> None:
    deep = ["shell", "x", "!exit code 1\nFAIL sum: expected 3"]
    trail = trail_of({"turns": [deep] * 4})
    turns = tuple(
        replace(turn, calls=tuple(replace(call, arguments="[" * 4_000) for call in turn.calls)) for turn in trail.turns
    )
    assert [finding.kind for finding in find(replace(trail, turns=turns), Thresholds())] == [IncidentKind.LOOP]


def test_a_claim_behind_a_wall_of_signs_is_still_found() -> None:
    assert [claim.verb for claim in claims_in("- " * 2_000 + ". I have sent the invoice to Acme.")] == ["sent"]
