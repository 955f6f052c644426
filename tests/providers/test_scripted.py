"""The scripted provider: exact, stateless, and clear about what is wrong with a scenario."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from workspaces.providers import make_provider
from workspaces.providers.base import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    ProviderConfig,
    ProviderError,
    RawToolCall,
    TokenUsage,
)
from workspaces.providers.scenario import ScenarioError, read_scenario
from workspaces.providers.scripted import ScriptedProvider, shipped_scenarios
from workspaces.wire.driving import CallInterrupted


def provider(text: str, timeout_s: float = 10.0) -> Any:
    return make_provider("scripted", ProviderConfig(timeout_s=timeout_s, options={"scenario_text": text}))


def conversation(*results: str, user: str = "do it") -> ChatRequest:
    """A request after as many turns as there are results, each of one call."""
    messages = [ChatMessage("system", "S"), ChatMessage("user", user)]
    for at, result in enumerate(results):
        messages.append(ChatMessage("assistant", "", (RawToolCall(f"c{at}", "shell", "{}"),)))
        messages.append(ChatMessage("tool", result, tool_call_id=f"c{at}"))
    return ChatRequest("scripted", tuple(messages))


def play(text: str, *results: str, **how: Any) -> ChatReply:
    reply: ChatReply = provider(text).complete(conversation(*results), **how)
    return reply


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_are_valid(name: str) -> None:
    made = make_provider("scripted", ProviderConfig(options={"scenario": name}))
    assert isinstance(made, ScriptedProvider)


def test_hello_writes_reads_and_finishes_by_what_it_read() -> None:
    hello = make_provider("scripted", ProviderConfig(options={"scenario": "hello"}))

    def call(*results: str) -> tuple[str, Any]:
        (made,) = hello.complete(conversation(*results)).tool_calls
        return made.name, json.loads(made.arguments)

    assert call() == ("write_file", {"path": "hello.txt", "content": "hello\n"})
    assert call("wrote") == ("read_file", {"path": "hello.txt"})
    assert call("wrote", "hello\n") == ("finish", {"summary": "hello.txt is there and says hello."})
    name, arguments = call("wrote", "no such file")
    assert name == "finish"
    assert arguments["summary"].endswith("could not be read back: no such file")


def test_the_same_request_gets_the_same_reply_whatever_came_before() -> None:
    text = "replies: [{text: a, calls: [{name: shell}, {name: shell}]}, {text: b}, {text: c}]"
    one = provider(text)
    forward = [one.complete(conversation(*["r"] * n)) for n in (0, 1, 2)]
    other = provider(text)
    backward = [other.complete(conversation(*["r"] * n)) for n in (2, 1, 0)][::-1]
    assert [reply.text for reply in forward] == ["a", "b", "c"]
    for left, right in zip(forward, backward, strict=True):
        timeless = {"latency_s": 0.0, "first_token_s": None}
        assert replace(left, **timeless) == replace(right, **timeless)
    assert [call.call_id for call in forward[0].tool_calls] == ["call_0_0", "call_0_1"]


def test_repeat_and_the_three_ends() -> None:
    text = "replies: [{text: a, repeat: 2}, {text: b}]\nafter: "
    assert [play(text + "repeat_last", *["r"] * n).text for n in range(5)] == ["a", "a", "b", "b", "b"]
    (call,) = play(text + "finish", "r", "r", "r").tool_calls
    assert call.name == "finish"
    assert "summary" in json.loads(call.arguments)
    with pytest.raises(ProviderError, match="no reply 3") as caught:
        play(text + "error", "r", "r", "r")
    assert caught.value.permanent


def test_the_first_case_that_fits_answers() -> None:
    text = """
    replies:
      - text: run
      - cases:
          - when: {last_result_matches: "(?i)failed", instruction_matches: "^do"}
            text: fix
          - when: {any_result_matches: "warn"}
            text: look
          - text: done
    """
    assert play(text, "2 FAILED").text == "fix"
    assert play(text, "a warning").text == "look"
    assert play(text, "ok").text == "done"


def test_no_case_that_fits_is_an_error_that_names_the_place() -> None:
    with pytest.raises(ProviderError, match=r"replies\[0\]"):
        play("replies: [{cases: [{when: {message_matches: nothing}, text: a}]}]")


def test_templates_are_filled_from_the_conversation() -> None:
    text = r"""
    replies:
      - text: "{{instruction}} {{index}} \\{{index}}"
      - text: "{{last_result}}|{{result[0]}}|{{result[-1]}}|{{result[9]}}|"
        calls:
          - name: write_file
            arguments: {path: "{{last_user}}", lines: ["{{last_result}}", {deep: "{{index}}"}], n: 3}
          - name: shell
            arguments_text: '{"command": "echo {{last_result}}"}'
    """
    assert play(text).text == "do it 0 {{index}}"
    reply = play(text, 'say "hi"\n')
    assert reply.text == 'say "hi"\n|say "hi"\n|say "hi"\n||'
    assert json.loads(reply.tool_calls[0].arguments) == {
        "path": "do it",
        "lines": ['say "hi"\n', {"deep": "1"}],
        "n": 3,
    }
    assert json.loads(reply.tool_calls[1].arguments) == {"command": 'echo say "hi"\n'}


def test_a_result_is_never_filled_a_second_time() -> None:
    assert play("replies: [{text: a}, {text: '{{last_result}}'}]", "{{instruction}}").text == "{{instruction}}"


def test_broken_arguments_are_sent_as_they_are() -> None:
    reply = play("""replies: [{calls: [{name: shell, arguments_text: '{"command": "l'}], finish_reason: length}]""")
    assert reply.tool_calls[0].arguments == '{"command": "l'
    assert reply.finish_reason == "length"


def test_usage_is_told_estimated_or_missing() -> None:
    told = play("replies: [{text: a, usage: {input: 9, output: 8, cached_input: 7, cache_write: 6, reasoning: 5}}]")
    assert told.usage == TokenUsage(9, 8, 7, 6, 5)
    assert play("replies: [{text: a, usage: none}]").usage is None
    estimated = play(f"replies: [{{text: {'x' * 400}}}]").usage
    assert estimated is not None
    assert estimated.output_tokens == 100
    assert estimated.input_tokens > 0


def test_text_comes_in_pieces_after_its_delay() -> None:
    heard: list[tuple[str, float]] = []
    started = time.monotonic()
    reply = play(
        "replies: [{text: abcdefghij, delay_s: 0.1, chunks: 3, chunk_delay_s: 0.05}]",
        on_text=lambda piece: heard.append((piece, time.monotonic() - started)),
    )
    assert [piece for piece, _ in heard] == ["abcd", "efgh", "ij"]
    assert reply.text == "abcdefghij"
    assert heard[0][1] >= 0.1
    assert reply.first_token_s is not None
    assert 0.1 <= reply.first_token_s < reply.latency_s >= 0.2


@pytest.mark.parametrize(
    ("text", "partial"),
    [
        ("replies: [{text: abcd, delay_s: 60}]", ""),
        ("replies: [{text: abcd, chunks: 2, chunk_delay_s: 60}]", "ab"),
    ],
)
def test_an_order_interrupts_a_delay(text: str, partial: str) -> None:
    order = threading.Event()
    threading.Timer(0.1, order.set).start()
    started = time.monotonic()
    with pytest.raises(CallInterrupted) as caught:
        play(text, interrupt=order)
    assert time.monotonic() - started < 0.4
    assert caught.value.partial == partial


def test_a_delay_longer_than_the_timeout_is_a_timeout() -> None:
    with pytest.raises(ProviderError) as caught:
        provider("replies: [{text: a, delay_s: 60}]", timeout_s=0.1).complete(conversation())
    assert caught.value.kind == "timeout"


@pytest.mark.parametrize(
    ("kind", "permanent"),
    [
        ("rate_limit", False),
        ("overloaded", False),
        ("server", False),
        ("timeout", False),
        ("connection", False),
        ("malformed", False),
        ("auth", True),
    ],
)
def test_a_fault_is_a_provider_error(kind: str, permanent: bool) -> None:
    with pytest.raises(ProviderError) as caught:
        play(f"replies: [{{text: a, fault: {{kind: {kind}, retry_after_s: 2.5}}}}]")
    assert (caught.value.kind, caught.value.permanent, caught.value.retry_after_s) == (kind, permanent, 2.5)


def test_an_answer_and_a_fault_may_say_what_the_limits_are() -> None:
    headers = "headers: {x-ratelimit-limit-requests: 60, Retry-After: 3}"
    reply = play(f"replies: [{{text: a, {headers}}}]")
    with pytest.raises(ProviderError) as caught:
        play(f"replies: [{{text: a, {headers}, fault: {{kind: rate_limit}}}}]")
    for told in (reply.rate, caught.value.rate):
        assert told is not None
        assert (told.limits, told.retry_after_s) == ({"requests": 60}, 3.0)
    assert caught.value.retry_after_s == 3.0


def test_a_fault_with_times_passes_for_each_conversation_on_its_own() -> None:
    text = "replies: [{text: through, fault: {kind: server, times: 2}}]  # counted"
    for user in ("one", "two"):
        outcomes = []
        for _ in range(4):
            try:  # a new provider for each attempt, as a worker makes one for each step
                outcomes.append(provider(text).complete(conversation(user=user)).text)
            except ProviderError as error:
                outcomes.append(error.kind)
        assert outcomes == ["server", "server", "through", "through"]


def test_a_fault_can_come_in_the_middle_of_the_text() -> None:
    heard: list[str] = []
    with pytest.raises(ProviderError):
        play(
            "replies: [{text: abcdef, chunks: 3, fault: {kind: connection, after_chunks: 2}}]",
            on_text=heard.append,
        )
    assert heard == ["ab", "cd"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be a mapping"),
        ("replies: [", "line 1, column"),
        ("a: b\n  c: d", "line 2"),
        ("replies: []", "replies: must be a list"),
        ("replies: [{txt: a}]", r"replies\[0\]: unknown txt"),
        ("replies: [{text: 5}]", r"replies\[0\].text: must be text"),
        ("replies: [{text: a}, {calls: [{arguments: {}}]}]", r"replies\[1\].calls\[0\].name"),
        ("replies: [{calls: [{name: f, arguments: [1]}]}]", r"calls\[0\].arguments: must be a mapping"),
        ("replies: [{calls: [{name: f, arguments: {}, arguments_text: ''}]}]", "exclude each other"),
        ("replies: [{text: a, delay_s: -1}]", "delay_s: must be seconds"),
        ("replies: [{text: a, repeat: 0}]", "repeat: must be a whole number"),
        ("replies: [{text: a, finish_reason: done}]", "finish_reason: 'done'"),
        ("replies: [{text: a, fault: {kind: gremlin}}]", "fault.kind: 'gremlin'"),
        ("replies: [{cases: [{when: {last_result_matches: '('}}]}]", r"cases\[0\].when.last_result_matches: not a"),
        ("replies: [{cases: [{text: a}, {text: b}]}]", r"cases\[0\]: without `when` only the last"),
        ("replies: [{text: a, cases: [{text: b}]}]", "belongs into a case"),
        ("replies: [{text: a}]\nafter: never", "after: 'never'"),
        ("replies: [{text: a, usage: {input: many}}]", "usage.input: must be a whole number"),
        ("x: &a [1]\nreplies: *a", "line 2.*aliases"),
        ("replies: !!python/object:os.system [{}]", "line 1"),
        ("replies: [{text: a, repeat: 100001}]", "more than 100000"),
    ],
)
def test_a_bad_scenario_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        read_scenario(text)


def test_an_unknown_scenario_names_the_known() -> None:
    with pytest.raises(ScenarioError, match="hello"):
        make_provider("scripted", ProviderConfig(options={"scenario": "../hello"}))
    with pytest.raises(ScenarioError, match="needs scenario_text"):
        make_provider("scripted", ProviderConfig())


def test_an_unknown_provider_names_the_known() -> None:
    with pytest.raises(ValueError, match="openai, anthropic, scripted"):
        make_provider("gemini", ProviderConfig())
