"""The scratchpad's entries and the bounded head of it that every request carries."""

from __future__ import annotations

import pytest

from workspaces.domain.scratchpad import (
    HEAD_CHARS,
    Outcome,
    added,
    attempt_entry,
    contradiction_entry,
    entries,
    head,
)


def test_an_attempt_and_a_contradiction_are_read_back_as_one_entry_each() -> None:
    text = added("", attempt_entry("pip install lxml", Outcome.FAILED, "no compiler:\ngcc is missing"))
    text = added(text, attempt_entry("apt-get install gcc", Outcome.WORKED, ""))
    text = added(text, contradiction_entry("port 80", "port 8080", "README.md, app.conf"))
    assert text.startswith("- failed: pip install lxml\n  why: no compiler:\n    gcc is missing\n- worked: apt-get")
    assert len(entries(text)) == 3
    assert entries("tried a\nfailed") == ["tried a", "failed"], "what was written freely is read line by line"


def test_an_entry_that_was_written_before_a_crash_is_there_once() -> None:
    assert added("a\nb", "b") == "a\nb"
    assert added("a\ncb", "b") == "a\ncb\nb"


def test_a_small_scratchpad_is_sent_whole_and_an_empty_one_not_at_all() -> None:
    assert head({}) == head({"plan": " \n"}) == ""
    assert head({"plan": "first", "attempts": "- failed: x", "exit_condition": "tests pass"}) == (
        "## exit_condition\ntests pass\n\n## plan\nfirst\n\n## attempts\n- failed: x"
    )


def test_a_long_section_shows_its_newest_attempts_and_says_how_the_others_are_read() -> None:
    attempts = "\n".join(attempt_entry(f"try number {n}", Outcome.FAILED, "no luck " * 20) for n in range(200))
    pad = {"exit_condition": "all tests pass", "plan": "p" * 30_000, "attempts": attempts, "notes": "n\n" * 9_000}
    text = head(pad)
    assert len(text) <= HEAD_CHARS
    assert "## exit_condition\nall tests pass" in text
    assert "try number 199" in text
    assert "try number 10\n" not in text
    shown = len(entries(text.split("## attempts\n")[1].split("\n\n## ")[0])) - 1
    assert f'(… {200 - shown} older entries: read it whole with note(section="attempts", read=true))' in text
    assert 'note(section="plan", read=true)' in text
    assert 'note(section="notes", read=true)' in text


def test_room_that_a_section_does_not_need_is_given_to_the_others() -> None:
    attempts = "\n".join(attempt_entry(f"try {n}", Outcome.FAILED, "w" * 100) for n in range(30))
    assert head({"attempts": attempts}) == f"## attempts\n{attempts}"


@pytest.mark.parametrize("limit", [900, 2_500, HEAD_CHARS])
@pytest.mark.parametrize("long", [10, 700, 20_000])
def test_the_head_keeps_to_its_limit(limit: int, long: int) -> None:
    names = ["exit_condition", "plan", "attempts", "contradictions", "notes", *(f"own {n}" for n in range(40))]
    lines = dict.fromkeys(names, ("- failed: " + "x" * 60 + "\n") * (long // 70) + "y" * (long % 70))
    assert 0 < len(head(lines, limit)) <= limit
    assert 0 < len(head(dict.fromkeys(names, "z" * long), limit)) <= limit
