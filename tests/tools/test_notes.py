"""note, ask_operator, finish: no sandbox is needed for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.tools.conftest import Scratchpad
from workspaces.domain.results import ResultClass as R
from workspaces.tools.base import ToolContext, ToolResult
from workspaces.tools.registry import BUILTIN_NAMES, build_tools


@pytest.fixture
def context(notes: Scratchpad) -> ToolContext:
    return ToolContext("c1", cast(Any, None), notes)


def run(context: ToolContext, tool: str, **arguments: Any) -> ToolResult:
    return build_tools(BUILTIN_NAMES)[tool].run(arguments, context)


def test_attempts_grow_and_a_plan_is_replaced(context: ToolContext, notes: Scratchpad) -> None:
    for section in ("attempts", "plan"):
        run(context, "note", section=section, text="first")
        run(context, "note", section=section, text="second")
    assert notes.sections == {"attempts": "first\nsecond", "plan": "second"}
    run(context, "note", section="attempts", text="only this", replace=True)
    assert notes.sections["attempts"] == "only this"


def test_a_note_written_again_after_a_crash_is_there_once(context: ToolContext, notes: Scratchpad) -> None:
    run(context, "note", section="attempts", text="tried a\nfailed")
    run(context, "note", section="attempts", text="tried b")
    run(context, "note", section="attempts", text="tried b")
    assert notes.sections["attempts"] == "tried a\nfailed\ntried b"
    run(context, "note", section="attempts", text="b")  # ends alike, but is another entry
    assert notes.sections["attempts"].endswith("tried b\nb")


def test_a_section_has_a_limit_and_nothing_is_lost_at_it(context: ToolContext, notes: Scratchpad) -> None:
    run(context, "note", section="notes", text="x" * 15_000)
    found = run(context, "note", section="notes", text="y" * 15_000)
    assert found.result_class is R.ERROR
    assert "replace=true" in found.content
    assert notes.sections["notes"] == "x" * 15_000


def test_what_cannot_be_stored_is_cleaned(context: ToolContext, notes: Scratchpad) -> None:
    run(context, "note", section="plan", text="a\x00b\ud83d")
    notes.sections["plan"].encode()
    assert "\x00" not in notes.sections["plan"]


@pytest.mark.parametrize(
    ("tool", "argument", "control"), [("finish", "summary", "finish"), ("ask_operator", "question", "ask_operator")]
)
def test_control_is_asked_for_only_with_words(context: ToolContext, tool: str, argument: str, control: str) -> None:
    found = run(context, tool, **{argument: "  Done: all of it. "})
    assert (found.content, found.control) == ("Done: all of it.", control)
    blank = run(context, tool, **{argument: " \n"})
    assert (blank.result_class, blank.control) == (R.ERROR, "")


def test_attempts_and_contradictions_have_a_form_that_can_be_read(context: ToolContext, notes: Scratchpad) -> None:
    run(context, "note", section="attempts", attempt="pip install lxml", outcome="failed", why="no compiler")
    run(context, "note", section="attempts", attempt="apt-get install gcc", outcome="worked")
    run(context, "note", section="contradictions", claim="port 80", against="port 8080", seen="README, app.conf")
    assert notes.sections == {
        "attempts": "- failed: pip install lxml\n  why: no compiler\n- worked: apt-get install gcc",
        "contradictions": "- one says: port 80\n  another says: port 8080\n  seen in: README, app.conf",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        {"section": "plan", "attempt": "x", "outcome": "failed"},
        {"section": "attempts", "attempt": "x"},
        {"section": "attempts", "text": "x", "outcome": "failed"},
        {"section": "contradictions", "claim": "x"},
        {"section": "notes", "claim": "x", "against": "y"},
        {"section": "notes"},
    ],
)
def test_a_note_that_is_none_says_what_is_missing(
    context: ToolContext, notes: Scratchpad, arguments: dict[str, str]
) -> None:
    found = run(context, "note", **arguments)
    assert found.result_class is R.ERROR
    assert notes.sections == {}


def test_a_section_is_read_whole_and_not_changed(context: ToolContext, notes: Scratchpad) -> None:
    assert "Nothing" in run(context, "note", section="plan", read=True).content
    run(context, "note", section="notes", text="n" * 15_000)
    assert run(context, "note", section="notes", read=True, text="ignored").content == "n" * 15_000
    assert notes.sections == {"notes": "n" * 15_000}
