"""How model replies are read: invented ones for each form, and ten measured ones for what models really do."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.domain.replies import ProposedCall, ReplyReading, read_reply
from workspaces.providers.base import RawToolCall
from workspaces.providers.history import argument_object

TOOLS = frozenset({"write_file", "run_shell", "finish"})
TRANSCRIPTS = Path(__file__).parent.parent / "data" / "model_failures"


def native(arguments: str, finish_reason: str = "tool_calls") -> ProposedCall:
    reading = read_reply("", [RawToolCall("c1", "write_file", arguments)], finish_reason, known_tools=TOOLS)
    assert reading.kind == "calls"
    (call,) = reading.calls
    assert (call.call_id, call.name, call.source, call.raw) == ("c1", "write_file", "native", arguments)
    assert (call.arguments is None) == (call.problem is not None)
    return call


def text(written: str, finish_reason: str = "stop") -> ReplyReading:
    reading = read_reply(written, (), finish_reason, known_tools=TOOLS, id_seed="step 1")
    for call in reading.calls:
        assert call.source == "fenced"
        assert "not as a tool call" in call.correction
    return reading


# --- native calls


def test_a_good_call_is_read_without_a_correction() -> None:
    call = native('{"path": "a", "content": "b"}')
    assert (call.arguments, call.problem, call.correction) == ({"path": "a", "content": "b"}, None, "")


def test_broken_json_says_where_and_why() -> None:
    call = native('{"path": "a",\n "content": b}')
    assert call.problem == "unparsable"
    assert "line 2, column 13" in call.detail
    assert "Expecting value" in call.detail


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"n": 1e999}', "too large a number"),
        ('{"n": -1e999}', "too large a number"),
        ('{"n": ' + "9" * 5_000 + "}", ""),
        ('{"n": ' + "[" * 900 + "]" * 900 + "}", "nested too deeply"),
        ('{"n": ' + '{"a": ' * 400 + "1" + "}" * 401, "nested too deeply"),
        ("[" * 50_000 + "]" * 50_000, "nested too deeply"),
    ],
)
def test_arguments_that_nobody_can_store_are_unparsable(arguments: str, told: str) -> None:
    """Wherever they stand: in a call, in a fenced block, in the open, or encoded twice."""
    call = native(arguments)
    assert call.problem == "unparsable"
    assert told in call.detail
    written = f'{{"name": "finish", "arguments": {arguments}}}'
    for reading in (
        text(written),
        text(f"```json\n{written}\n```"),
        text(json.dumps({"name": "finish", "arguments": arguments})),
    ):
        assert all(found.arguments is None for found in reading.calls)
    assert "_unparsed" in argument_object(arguments), "and it can be sent back"


@pytest.mark.parametrize("cut", ['{"path": "a", "content": "hel', '{"path": "a"', '{"path": ', "{", "", '{"a": "x\\'])
def test_json_that_ends_early_at_the_token_limit_is_cut_off(cut: str) -> None:
    call = native(cut, "length")
    assert call.problem == "cut_off"
    assert "token limit" in call.detail


def test_json_that_ends_early_without_the_limit_is_only_unparsable() -> None:
    assert native('{"path": "a', "tool_calls").problem == "unparsable"


def test_json_that_is_wrong_before_its_end_is_unparsable_at_the_limit_too() -> None:
    assert native("{path: 1}", "length").problem == "unparsable"


def test_a_complete_call_at_the_token_limit_is_a_call() -> None:
    assert native('{"path": "a"}', "length").problem is None


def test_only_the_last_of_several_calls_can_be_cut_off() -> None:
    calls = [RawToolCall("1", "f", '{"a": '), RawToolCall("2", "f", '{"a": ')]
    assert [call.problem for call in read_reply("", calls, "length").calls] == ["unparsable", "cut_off"]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [("[1]", "an array"), ("null", "null"), ('"x"', "a string"), ("3", "a number"), ("true", "true")],
)
def test_arguments_that_are_no_object(arguments: str, kind: str) -> None:
    call = native(arguments)
    assert call.problem == "not_an_object"
    assert kind in call.detail


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_json_does_not_know_is_unparsable(constant: str) -> None:
    assert native(f'{{"x": {constant}}}').problem == "unparsable"


def test_no_arguments_are_an_empty_object_and_recorded() -> None:
    call = native("")
    assert call.arguments == {}
    assert "no arguments" in call.correction


def test_arguments_encoded_twice_or_fenced_are_read_and_recorded() -> None:
    twice = native(json.dumps('{"path": "a"}'))
    assert (twice.arguments, bool(twice.correction)) == ({"path": "a"}, True)
    fenced = native('```json\n{"path": "a"}\n```')
    assert (fenced.arguments, bool(fenced.correction)) == ({"path": "a"}, True)


def test_nul_and_half_surrogates_are_cleaned_in_names_keys_values_and_text() -> None:
    reading = read_reply("a\x00", [RawToolCall("c\x00", "f\ud800", '{"k\\u0000": "\\ud83d v"}')])
    (call,) = reading.calls
    assert (reading.text, call.call_id, call.name) == ("a\ufffd", "c\ufffd", "f\ufffd")
    assert call.arguments == {"k\ufffd": "\ufffd v"}
    written = text('{"name": "finish", "arguments": {"summary": "a\\u0000b"}}')
    assert written.calls[0].arguments == {"summary": "a\ufffdb"}


def test_nesting_without_end_is_a_problem_not_a_crash() -> None:
    assert native('{"a":' * 100_000).problem == "unparsable"


def test_calls_in_the_text_are_left_alone_beside_native_ones() -> None:
    reading = read_reply(
        '{"name": "finish", "arguments": {}}', [RawToolCall("c1", "write_file", "{}")], known_tools=TOOLS
    )
    assert [call.name for call in reading.calls] == ["write_file"]


# --- calls written into the text

CALL = '{"name": "write_file", "arguments": {"path": "a"}}'
FORMS = {
    "fenced": (f"```json\n{CALL}\n```", "fenced block"),
    "fenced without a language": (f"```\n{CALL}\n```", "fenced block"),
    "fenced, never closed": (f"```json\n{CALL}", "fenced block"),
    "fenced, with words around": (f"I will write.\n```json\n{CALL}\n```\nThen I finish.", "fenced block"),
    "bare": (CALL, "bare JSON"),
    "bare, with words around": (f"Now {CALL} is next.", "bare JSON"),
    "tags": (f"<tool_call>\n{CALL}\n</tool_call>", "<tool_call>"),
    "tags, never closed": (f"<tool_call>{CALL}", "<tool_call>"),
    "doubled braces": ('{{"name": "write_file", "arguments": {"path": "a"}}}', "doubled braces"),
    "all braces doubled": ('{{"name": "write_file", "arguments": {{"path": "a"}}}}', "doubled braces"),
    "doubled braces in a fence": (
        '```json\n{{"name": "write_file", "arguments": {"path": "a"}}}\n```',
        "fenced block of the text with doubled braces",
    ),
    "parameters": ('{"name": "write_file", "parameters": {"path": "a"}}', "bare JSON"),
    "tool and args": ('{"tool": "write_file", "args": {"path": "a"}}', "bare JSON"),
    "the wire form": (f'{{"type": "function", "function": {CALL}}}', "bare JSON"),
    "arguments as text": ('{"name": "write_file", "arguments": "{\\"path\\": \\"a\\"}"}', "bare JSON"),
    "in an array": (f"[{CALL}]", "bare JSON"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_call_written_into_the_text_is_found_and_recorded(form: str) -> None:
    written, how = FORMS[form]
    reading = text(written)
    assert reading.kind == "calls"
    assert [(call.name, call.arguments) for call in reading.calls] == [("write_file", {"path": "a"})]
    assert how in reading.calls[0].correction
    assert "write_file" not in reading.text
    assert "`" not in reading.text


@pytest.mark.parametrize(
    "written",
    [
        f"```json\n{CALL}\n```\n```json\n{CALL}\n```",
        f"{CALL}\n{CALL}",
        f"[{CALL}, {CALL}]",
        f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>",
        f"First {CALL} then {CALL}.",
    ],
)
def test_several_calls_keep_their_order_and_get_ids_of_their_own(written: str) -> None:
    written = written[::-1].replace('"a"'[::-1], '"b"'[::-1], 1)[::-1]  # the last path is b
    reading = text(written)
    assert [call.arguments for call in reading.calls] == [{"path": "a"}, {"path": "b"}]
    assert len({call.call_id for call in reading.calls}) == 2
    assert [call.call_id for call in text(written).calls] == [call.call_id for call in reading.calls]


def test_ids_differ_between_steps() -> None:
    first = read_reply(CALL, known_tools=TOOLS, id_seed="1").calls[0]
    assert first.call_id != read_reply(CALL, known_tools=TOOLS, id_seed="2").calls[0].call_id


def test_a_file_that_holds_a_fence_is_written_whole() -> None:
    content = "# Title\n```sh\nmake\n```\n</tool_call>\n"
    call = json.dumps({"name": "write_file", "arguments": {"path": "README.md", "content": content}})
    for written in (f"```json\n{call}\n```", f"<tool_call>{call}</tool_call>", call):
        (read,) = text(written).calls
        assert read.arguments == {"path": "README.md", "content": content}


def test_an_unknown_tool_in_a_fence_is_still_a_call_for_the_gate() -> None:
    reading = text('```json\n{"name": "create_file", "arguments": {"path": "a"}}\n```')
    assert [call.name for call in reading.calls] == ["create_file"]


def test_a_call_in_a_fence_that_is_cut_off_is_named_so() -> None:
    reading = text('```json\n{"name": "write_file", "arguments": {"path": "a", "content": "x', "length")
    assert [(call.name, call.arguments, call.problem) for call in reading.calls] == [("write_file", None, "cut_off")]


def test_a_broken_call_of_a_known_tool_is_a_call_with_a_problem() -> None:
    reading = text('```json\n{"name": "write_file", "arguments": {"path": a}}\n```')
    assert [(call.name, call.problem) for call in reading.calls] == [("write_file", "unparsable")]
    assert "column" in reading.calls[0].detail


@pytest.mark.parametrize(
    "written",
    [
        "All done.",
        "Use `{}` for an empty object.",
        '{"summary": "wrote 5 characters"}',
        '```json\n{"name": "demo", "version": "1.0", "scripts": {}}\n```',
        '```json\n{"name": "Alice"}\n```',
        '[{"name": "Alice", "age": 3}, {"name": "Bob", "age": 4}]',
        'The body is {"name": "Alice", "input": {"x": 1}} as you see.',
        "```python\nprint({'name': 'write_file', 'arguments': {}})\n```",
        "<finish>Task completed successfully.</finish>",
        "```\n```\n```",
    ],
)
def test_text_that_is_no_call_stays_text(written: str) -> None:
    reading = text(written)
    assert (reading.kind, reading.calls, reading.text) == ("text", (), written)


# --- the reply as a whole


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_a_reply_with_nothing_is_empty(blank: str) -> None:
    assert text(blank).kind == "empty"


@pytest.mark.parametrize("written", ["", "I was about to sa", 'Now {"name": "write_file", "argu'])
def test_a_reply_that_ends_at_the_limit_without_a_call_is_cut_off(written: str) -> None:
    reading = text(written, "length")
    assert (reading.kind, reading.calls, reading.text) == ("cut_off", (), written)


PIECES = [*'{}[]",:`<>/ \n\\', "name", "write_file", "arguments", "<tool_call>", '{"name": "write_file", ', "a"]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_read_without_a_crash(written: str) -> None:
    for finish_reason in ("stop", "length"):
        reading = read_reply(written, (), finish_reason, known_tools=TOOLS)
        assert (reading.kind == "calls") == bool(reading.calls)
        native(written, finish_reason)


@pytest.mark.parametrize(
    "piece", ["{", "{{", "[", "```\n", "<tool_call>", '{"name":', '{{"name":', '{"name": "finish", ']
)
def test_a_hostile_text_is_read_in_a_moment(piece: str) -> None:
    started = time.process_time()
    text(piece * (300_000 // len(piece)))
    assert time.process_time() - started < 2.0


# --- ten measured transcripts of small models

GOOD, CUT = None, "cut_off"
FENCE, BARE, DOUBLED = "fenced block", "bare JSON", "doubled braces"

# For each transcript what each reply is, by looking at it: (kind, [(tool, problem, how it was written)]).
# "http" is not a reply: the server refused the request.
READINGS: dict[str, list[Any]] = {
    # three good calls; then write_file repeats itself up to the limit; echoing that was answered with HTTP 500
    "qwen0.5b-fence_native_t0.0_hello_0": [
        *[("calls", [("write_file", GOOD, "")])] * 3,
        ("calls", [("write_file", CUT, "")]),
        "http",
    ],
    # a grammar forces {"tool", "args"} into the text: right calls, a clean run
    "qwen1.5b-fence_gbnf_t0.0_fix_0": [
        ("calls", [("run_shell", GOOD, BARE)]),
        ("calls", [("write_file", GOOD, BARE)]),
        ("calls", [("finish", GOOD, BARE)]),
    ],
    # well-formed throughout: the fault is in what is done (the test is overwritten), not in how it is written
    "qwen1.5b-fence_native_required_t0.0_fix_0": [
        ("calls", [("run_shell", GOOD, "")]),
        ("calls", [("write_file", GOOD, "")]),
        ("calls", [("write_file", GOOD, "")]),
        ("calls", [("run_shell", GOOD, "")]),
        ("calls", [("finish", GOOD, "")]),
    ],
    # well-formed: a cycle of two calls, which is the detectors' matter
    "qwen1.5b-fence_native_required_t0.7_fix_1": [
        ("calls", [("run_shell", GOOD, "")]),
        ("calls", [("write_file", GOOD, "")]),
    ]
    * 4,
    # the same write six times
    "qwen1.5b_gbnf_t0.7_hello_4": [("calls", [("write_file", GOOD, BARE)])] * 6,
    # one fenced call; then arguments without a name, and a made-up <finish> tag: no calls, and not to be guessed
    "qwen1.5b_native_lenient_t0.7_hello_1": [("calls", [("write_file", GOOD, FENCE)]), *[("text", [])] * 5],
    # complete fenced calls, then only newlines or fences up to the limit: the calls count
    "qwen1.5b_native_required_t0.0_hello_0": [
        ("calls", [("write_file", GOOD, FENCE)]),
        ("calls", [("finish", GOOD, FENCE)]),
        ("calls", [("finish", GOOD, FENCE)]),
    ],
    "qwen1.5b_native_t0.0_hello_0": [
        ("calls", [("write_file", GOOD, FENCE)]),
        *[("calls", [("finish", GOOD, FENCE)])] * 5,
    ],
    "qwen1.5b_native_t0.7_hello_5": [
        ("calls", [("write_file", GOOD, FENCE)]),
        ("calls", [("run_shell", GOOD, FENCE)]),
        ("calls", [("run_shell", GOOD, FENCE)]),
        ("calls", [("write_file", GOOD, FENCE)]),
        ("calls", [("write_file", GOOD, FENCE)]),
        ("calls", [("finish", GOOD, FENCE)]),
    ],
    # doubled braces; two calls in the first reply
    "qwen1.5b_native_t0.7_hello_8": [
        ("calls", [("write_file", GOOD, DOUBLED), ("finish", GOOD, DOUBLED)]),
        *[("calls", [("finish", GOOD, DOUBLED)])] * 5,
    ],
}


def test_every_transcript_has_its_reading() -> None:
    assert {path.stem for path in TRANSCRIPTS.glob("*.json")} == set(READINGS)


@pytest.mark.parametrize("name", READINGS)
def test_a_measured_transcript_is_read_rightly(name: str) -> None:
    replies = json.loads((TRANSCRIPTS / f"{name}.json").read_text())["replies"]
    assert len(replies) == len(READINGS[name])
    for at, (reply, expected) in enumerate(zip(replies, READINGS[name], strict=True)):
        if expected == "http":
            assert reply["http_error"] == 500
            continue
        calls = [RawToolCall(call["id"], call["name"], call["arguments"]) for call in reply["tool_calls"]]
        reading = read_reply(reply["content"] or "", calls, reply["finish_reason"], known_tools=TOOLS, id_seed=str(at))
        kind, wanted = expected
        assert (reading.kind, [(call.name, call.problem) for call in reading.calls]) == (
            kind,
            [(tool, problem) for tool, problem, _ in wanted],
        )
        for call, (_, problem, how) in zip(reading.calls, wanted, strict=True):
            assert (call.arguments is None) == (problem is not None)
            assert (how in call.correction) if how else (call.correction == "")


def test_the_cut_off_call_that_made_a_server_answer_500_is_sent_in_a_form_that_does_not() -> None:
    from workspaces.providers.history import argument_object

    replies = json.loads((TRANSCRIPTS / "qwen0.5b-fence_native_t0.0_hello_0.json").read_text())["replies"]
    cut = replies[3]["tool_calls"][0]["arguments"]
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(cut)
    assert argument_object(cut) == {"_unparsed": cut}
