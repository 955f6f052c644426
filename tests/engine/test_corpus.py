"""The played part of the detectors' corpus comes from the real engine: a scenario played again gives the same line."""

from __future__ import annotations

import json

import pytest

from tests.corpus.generate import HERE, play, scenarios

pytestmark = pytest.mark.django_db(transaction=True)

AGAIN = ["a missing file read again and again", "a call without its content", "the same question, answered each time"]


@pytest.mark.parametrize("name", AGAIN)
def test_a_scenario_played_again_gives_the_line_of_the_corpus(name: str) -> None:
    lines = (json.loads(line) for line in (HERE / "played.jsonl").read_text().splitlines())
    recorded = next(line for line in lines if line["name"] == name)
    entry = next(entry for entry in scenarios() if entry["name"] == name)
    assert json.loads(json.dumps(play(entry))) == recorded
