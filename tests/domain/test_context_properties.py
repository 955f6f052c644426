"""Whatever the history, the window and what goes: pinned texts are sent word for word, and calls keep their results."""

from __future__ import annotations

import itertools
import string
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.compaction import (
    ContextPolicy,
    Cut,
    clipped,
    fewer,
    file_of,
    long_entries,
    missing,
    offloaded,
    oldest_turns,
    pinned_of,
    summarised,
    summary_prompt,
    why_refused,
    with_replacements,
    with_summary,
)
from workspaces.domain.context import (
    Entry,
    History,
    Line,
    Replaced,
    SegmentKind,
    entries_of,
    estimate_tokens,
    in_request_order,
)

MANY = settings(max_examples=120, deadline=None, derandomize=True)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=string.ascii_letters + " \n", min_size=1, max_size=40).map(lambda text: text * 120),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """As the engine writes them: a call's results come before the next reply, people speak whenever they like."""
    lines: list[Line] = []
    ids = itertools.count(draw(st.integers(1, 50)))

    def add(role: str, content: str, *, pinned: bool = False, calls: Any = (), call_id: str = "") -> None:
        number = next(ids)
        tokens = estimate_tokens(content, calls)
        lines.append(Line(number, 0, role, content, calls, call_id, tokens, pinned, number))

    def people_speak() -> None:
        for _ in range(draw(st.integers(0, 1))):
            add("user", draw(TEXTS), pinned=draw(st.booleans()))

    add("user", draw(TEXTS), pinned=True)
    for turn in range(draw(st.integers(0, 9))):
        names = [f"c{turn}_{at}" for at in range(draw(st.integers(0, 3)))]
        calls = tuple(
            {
                "call_id": name,
                "name": "shell",
                "arguments": f'{{"command": "{draw(st.sampled_from(["ls", "x" * 900]))}"}}',
            }
            for name in names
        )
        add("assistant", draw(TEXTS), calls=calls)
        for name in names:
            people_speak()
            add("tool", draw(TEXTS), call_id=name, pinned=draw(st.integers(0, 9)) == 0)
        people_speak()
    return History(tuple(lines))


POLICIES = st.builds(
    ContextPolicy,
    keep_recent=st.integers(1, 5),
    offload_over_tokens=st.integers(10, 400),
    summary_max_tokens=st.integers(20, 200),
)


@st.composite
def compacted(draw: st.DrawFn) -> tuple[History, History]:
    """(as it was written, after some compactions of some kinds), each on top of the ones before."""
    history = written = draw(histories())
    policy = draw(POLICIES)
    for _ in range(draw(st.integers(0, 4))):
        keep = draw(st.integers(0, policy.keep_recent))
        match draw(st.sampled_from(["offload", "clip", "summarise"])):
            case "summarise":
                cut = oldest_turns(
                    history,
                    keep_recent=max(1, keep),
                    too_many=draw(st.integers(1, 20_000)),
                    summary_tokens=policy.summary_max_tokens,
                )
                cut = fewer(cut) or cut if cut is not None and draw(st.booleans()) else cut
                said = draw(st.text(max_size=80))
                if cut is not None and not why_refused(said, calls=0, finish_reason="stop", cut=cut):
                    history = with_summary(history, summarised(cut, said))
            case how:
                found = long_entries(history, keep_recent=keep, over_tokens=policy.offload_over_tokens)
                history = with_replacements(history, [item for entry in found if (item := _shorter(entry, how))])
    return written, history


def _shorter(entry: Entry, how: str) -> Replaced | None:
    assert entry.line is not None
    if how == "offload" and entry.kind is SegmentKind.TOOL_OUTPUT:
        return offloaded(entry, file_of(entry.line.message_id))
    return clipped(entry)


def sent(history: History) -> list[str]:
    return ["the system prompt", *(entry.text for entry in entries_of(history))]


@MANY
@given(compacted())
def test_pinned_text_is_sent_word_for_word_whatever_was_compacted(found: tuple[History, History]) -> None:
    written, history = found
    pinned = pinned_of(written, system="the system prompt", notes="")
    assert missing(pinned, sent(history)) == []
    people = [line.content for line in written.lines if line.pinned and line.role == "user"]
    told = [entry.text for entry in entries_of(history) if entry.kind is SegmentKind.PINNED and entry.role == "user"]
    assert [text for text in told if text in people] == people or sorted(people) == sorted(
        text for text in told if text in people
    ), "each once"


@MANY
@given(compacted())
def test_a_call_and_its_results_are_never_parted(found: tuple[History, History]) -> None:
    _, history = found
    awaited: list[str] = []
    for entry in entries_of(history):
        if entry.role == "tool":
            assert awaited, "a result without its call"
            assert entry.call_id == awaited.pop(0)
        else:
            assert not awaited, "a call whose result does not follow"
            awaited = [call["call_id"] for call in entry.calls]
    assert not awaited


@MANY
@given(compacted())
def test_what_is_sent_gets_smaller_and_nothing_goes_that_is_not_accounted_for(found: tuple[History, History]) -> None:
    written, history = found
    before, after = entries_of(written), entries_of(history)
    kept_answers = sum(entry.kind is SegmentKind.PINNED and entry.role == "user" for entry in after)
    assert sum(entry.tokens for entry in after) <= sum(entry.tokens for entry in before) + 25 * kept_answers
    shown = {entry.line.message_id for entry in after if entry.line is not None}
    gone = {line.message_id for line in written.lines} - shown
    assert gone == {line.message_id for line in written.lines if history.covers(line)}
    replies = sum(line.role == "assistant" for line in written.lines if line.message_id in gone)
    assert replies == (history.summary.replies if history.summary else 0)


@MANY
@given(histories(), POLICIES, st.integers(1, 20_000))
def test_a_summary_is_asked_for_without_the_text_of_what_is_pinned(
    history: History, policy: ContextPolicy, too_many: int
) -> None:
    marked = History(tuple(replace(line, content=f"PIN{line.seq}") if line.pinned else line for line in history.lines))
    cut = oldest_turns(marked, keep_recent=policy.keep_recent, too_many=too_many, summary_tokens=50)
    if cut is None:
        return
    prompt = summary_prompt(cut, max_tokens=policy.summary_max_tokens, room_tokens=100_000)
    assert prompt is not None
    for line in marked.lines:
        if line.pinned and line.message_id <= cut.upto:
            assert line.content not in prompt[1].split()
            assert f"#{line.message_id}" in prompt[1]
    assert all(entry.line is not None for entry in cut.entries)
    recent = [line for line in marked.lines if line.message_id > cut.upto]
    assert sum(line.role == "assistant" for line in recent) >= 1, "the newest turns stay"


@MANY
@given(histories(), st.integers(60, 3_000))
def test_a_request_for_a_summary_keeps_to_its_room_or_is_not_made(history: History, room: int) -> None:
    cut = oldest_turns(history, keep_recent=1, too_many=10_000, summary_tokens=10)
    if cut is None:
        return
    prompt = summary_prompt(cut, max_tokens=100, room_tokens=room)
    if prompt is not None:
        assert estimate_tokens(prompt[0]) + estimate_tokens(prompt[1]) <= room


@MANY
@given(histories())
def test_the_order_of_a_request_holds_every_line_once(history: History) -> None:
    ordered = in_request_order(history.lines)
    assert sorted(line.message_id for line in ordered) == [line.message_id for line in history.lines]


def test_half_of_a_cut_is_a_cut_of_the_older_half() -> None:
    lines = [Line(1, 0, "user", "go", pinned=True, tokens=5, message_id=1)]
    lines += [Line(at, 0, "assistant", "x" * 400, tokens=115, message_id=at) for at in range(2, 12)]
    cut = oldest_turns(History(tuple(lines)), keep_recent=2, too_many=10_000, summary_tokens=10)
    assert cut is not None
    assert cut.upto == 9
    half = fewer(cut)
    assert isinstance(half, Cut)
    assert half.upto == 4
    assert half.replies == 3
