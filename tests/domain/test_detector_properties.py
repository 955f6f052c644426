"""What holds for the detectors on any trail, not only on those of the corpus."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpus.traces import trail_of
from workspaces.domain.detectors import find
from workspaces.domain.effects import Effect
from workspaces.domain.incidents import IncidentKind
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.trail import SeenCall, Trail, Turn

BOUNDED = settings(max_examples=60, deadline=None, derandomize=True)

texts = st.text(max_size=40) | st.sampled_from(["", "I will now fix it. " * 9, "done", "I will fix the parser."])
arguments = st.sampled_from(
    [
        '{"command":"npm test"}',
        '{"command":"sleep 5; ./job"}',
        '{"path":"a"}',
        "{",
        "null",
        '{"path":"a","old":"x"}',
        "[]",
    ]
) | st.text(max_size=30)
results = st.sampled_from(["ok", "", "status: pending", "exit code 1", "HTTP 404 Not Found"]) | st.text(max_size=60)


@st.composite
def turns(draw: st.DrawFn) -> tuple[Turn, ...]:
    """Any turns, drawn from few so that they repeat often."""
    calls = draw(
        st.lists(
            st.builds(
                SeenCall,
                seq=st.just(0),
                step=st.just(0),
                tool_call=st.integers(1, 9),
                name=st.sampled_from(["shell", "edit_file", "note", "ask_operator", "wait", "read_file"]),
                arguments=arguments,
                call_hash=st.just("") | st.text("0123456789abcdef", max_size=4),
                verdict=st.sampled_from(Verdict),
                effect=st.none() | st.sampled_from(Effect),
                result_class=st.sampled_from(ResultClass),
                result=results,
                result_hash=st.text("01", max_size=2),
            ),
            min_size=1,
            max_size=4,
        )
    )
    made = []
    for step in range(1, draw(st.integers(0, 40)) + 1):
        chosen = draw(st.lists(st.sampled_from(calls), max_size=2))
        made.append(
            Turn(
                step=step,
                seq=step * 10,
                text=draw(texts),
                finish_reason=draw(st.sampled_from(["stop", "tool_calls", "length", ""])),
                calls=tuple(replace(call, step=step, seq=step * 10 + n) for n, call in enumerate(chosen, 1)),
                disk=draw(st.sampled_from(["", "d1", "d2"])),
                notes=draw(st.integers(0, 1)),
                operator_spoke=draw(st.integers(0, 15)) == 0,
                provider_errors=tuple(draw(st.lists(st.just("timeout"), max_size=1))),
            )
        )
    return tuple(made)


trails = st.builds(Trail, turns(), st.sampled_from(["", "Wait until it is done.", "Fix it."]), texts)


@BOUNDED
@given(trails)
def test_any_trail_is_read_alike_twice_with_evidence_in_order(trail: Trail) -> None:
    findings = find(trail)
    assert findings == find(trail)
    for finding in findings:
        seqs = [place.seq for place in finding.evidence]
        assert seqs == sorted(seqs)
        assert (finding.first_seq, finding.last_seq) == (seqs[0], seqs[-1])
        assert finding.words
        assert len(finding.words) < 2000
        assert finding.cause.startswith(f"{finding.kind.value}/{finding.pattern}")
        assert finding.count >= 1
    assert len({finding.fingerprint for finding in findings}) == len(findings)


@BOUNDED
@given(trails, st.integers(0, 10**6))
def test_a_new_call_with_a_new_result_and_a_changed_file_never_makes_a_finding(trail: Trail, number: int) -> None:
    step = len(trail.turns) + 1
    novel = trail_of(
        {"turns": [["write_file", [f"novel/{number}.txt", f"novel {number}"], f"Created novel/{number}."]]}
    )
    (turn,) = novel.turns
    call = replace(turn.calls[0], step=step, seq=step * 10 + 1)
    turn = replace(turn, step=step, seq=step * 10, disk=f"novel-{number}", calls=(call,))
    assert find(replace(trail, turns=(*trail.turns, turn))) == []


@BOUNDED
@given(st.lists(st.text("abcdefghijklmnop", min_size=3, max_size=12), min_size=1, max_size=45, unique=True))
def test_a_trail_without_repetition_is_never_a_loop(words: list[str]) -> None:
    made = trail_of({"turns": [["read_file", f"{word}.md", f"this file speaks of {word}"] for word in words]})
    assert [finding for finding in find(made) if finding.kind is IncidentKind.LOOP] == []


@BOUNDED
@given(trails, st.integers(1, 30))
def test_a_person_who_speaks_ends_every_loop_but_a_question_asked_again(trail: Trail, spare: int) -> None:
    if not trail.turns:
        return
    last = replace(trail.turns[-1], operator_spoke=True)
    findings = find(replace(trail, turns=(*trail.turns[:-1], last)))
    assert {finding.pattern for finding in findings} <= {"same_question", "chanting"}
