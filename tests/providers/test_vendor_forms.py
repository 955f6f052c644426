"""What only one vendor's wire has: odd pieces of calls, negotiated parameters, headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.providers.servers import KEY, MODEL, Plan, Server
from workspaces.providers import make_provider
from workspaces.providers.assembly import CallAssembler
from workspaces.providers.base import ChatMessage, ChatReply, ChatRequest, ProviderConfig, ProviderError

REQUEST = ChatRequest(MODEL, (ChatMessage("system", "S"), ChatMessage("user", "hello")), max_output_tokens=99)


@pytest.fixture
def openai() -> Iterator[Server]:
    with Server("openai") as running:
        yield running


def ask(server: Server, **options: Any) -> ChatReply:
    config = ProviderConfig(server.base_url, KEY, 10.0, options)
    return make_provider(server.vendor, config).complete(REQUEST)


def piece(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made: dict[str, Any] = {"function": function}
    if index is not None:
        made["index"] = index
    if call_id is not None:
        made["id"] = call_id
    return made


# Each with the calls it must become: (name, arguments), and the ids that were given.
SHAPES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]], list[str]]] = {
    "whole calls, all with index 0 (several gateways)": (
        [piece(0, "a", "f", '{"x": 1}'), piece(0, "b", "g", "{}")],
        [("f", '{"x": 1}'), ("g", "{}")],
        ["a", "b"],
    ),
    "whole calls of one tool without index and id": (
        [piece(None, None, "f", '{"x": 1}'), piece(None, None, "f", '{"x": 2}')],
        [("f", '{"x": 1}'), ("f", '{"x": 2}')],
        [],
    ),
    "pieces without an index": (
        [piece(None, "a", "f", ""), piece(None, None, None, '{"x"'), piece(None, None, "", ": 1}")],
        [("f", '{"x": 1}')],
        ["a"],
    ),
    "an empty name and id in every later piece": (
        [piece(0, "a", "f", ""), piece(0, "", "", '{"x"'), piece(0, "", "", ": 1}")],
        [("f", '{"x": 1}')],
        ["a"],
    ),
    "the whole name repeated in every piece": (
        [piece(0, "a", "f", '{"x"'), piece(0, "a", "f", ": 1}")],
        [("f", '{"x": 1}')],
        ["a"],
    ),
    "a name in pieces": (
        [piece(0, "a", "write_", ""), piece(0, None, "file", ""), piece(0, None, None, "{}")],
        [("write_file", "{}")],
        ["a"],
    ),
    "arguments as an object": ([piece(0, "a", "f", {"x": "ü"})], [("f", '{"x": "ü"}')], ["a"]),
    "no arguments at all": ([piece(0, "a", "f")], [("f", "")], ["a"]),
    "interleaved by index": (
        [
            piece(0, "a", "f", '{"x"'),
            piece(1, "b", "g", '{"y"'),
            piece(0, None, None, ": 1}"),
            piece(1, None, None, ": 2}"),
        ],
        [("f", '{"x": 1}'), ("g", '{"y": 2}')],
        ["a", "b"],
    ),
    "the same id twice": (
        [piece(0, "a", "f", "{}"), piece(1, "a", "g", "{}")],
        [("f", "{}"), ("g", "{}")],
        ["a"],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_of_calls_become_calls_with_ids_of_their_own(openai: Server, shape: str) -> None:
    pieces, expected, ids = SHAPES[shape]
    openai.plans = [Plan(events=tuple({"tool_calls": [one]} for one in pieces), finish="tool_calls")]
    for calls in (ask(openai).tool_calls, _assembled(pieces)):
        assert [(call.name, call.arguments) for call in calls] == expected
        assert [call.call_id for call in calls][: len(ids)] == ids
        assert len({call.call_id for call in calls} - {""}) == len(expected)


def _assembled(pieces: list[dict[str, Any]]) -> Any:
    whole = CallAssembler()
    whole.add(pieces)  # all in one delta
    return whole.calls()


def test_the_old_function_call_form_is_read(openai: Server) -> None:
    events = ({"function_call": {"name": "f", "arguments": '{"x"'}}, {"function_call": {"arguments": ": 1}"}})
    openai.plans = [Plan(events=events)]
    reply = ask(openai)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("f", '{"x": 1}')]
    assert reply.finish_reason == "tool_calls"  # the server said "stop"


def test_a_server_that_refuses_stream_options_is_asked_once_without(openai: Server) -> None:
    openai.plans = [Plan(text=("ok",), refuses="stream_options")]
    provider = make_provider("openai", ProviderConfig(openai.base_url, KEY))
    assert provider.complete(REQUEST).usage is None
    assert provider.complete(REQUEST).text == "ok"
    assert ["stream_options" in asked for asked in openai.requests] == [True, False, False]


def test_a_server_that_wants_the_other_limit_parameter_gets_it(openai: Server) -> None:
    openai.plans = [Plan(text=("ok",), refuses="max_tokens")]
    assert ask(openai).text == "ok"
    assert [asked.get("max_completion_tokens") for asked in openai.requests] == [None, 99]


def test_a_chosen_limit_parameter_is_not_changed(openai: Server) -> None:
    openai.plans = [Plan(text=("ok",), refuses="max_tokens")]
    assert ask(openai, max_tokens_param="max_completion_tokens").text == "ok"
    with pytest.raises(ProviderError) as caught:
        ask(openai, max_tokens_param="max_tokens")
    assert caught.value.kind == "bad_request"


def test_usage_can_be_left_out(openai: Server) -> None:
    assert ask(openai, include_usage=False).usage is None
    assert "stream_options" not in openai.requests[0]


def test_a_header_set_by_hand_is_sent_and_not_repeated(openai: Server) -> None:
    secret = "gateway-secret-123"
    openai.plans = [Plan(status=400, error={"message": f"bad header {secret}, key sk-te**********ghij"})]
    with pytest.raises(ProviderError) as caught:
        ask(openai, headers={"x-gateway": secret})
    assert openai.headers[0]["x-gateway"] == secret
    assert secret not in str(caught.value)
    assert "ghij" not in str(caught.value)


@pytest.mark.parametrize("option", [None, "x-api-key"])
def test_anthropics_key_goes_into_the_header_that_the_server_wants(option: str | None) -> None:
    with Server("anthropic") as server:
        assert ask(server, **({"auth_header": option} if option else {})).text == "ok"
        sent = server.headers[0]
        assert sent.get("authorization") == (None if option else f"Bearer {KEY}")
        assert sent.get("x-api-key") == (KEY if option else None)


def test_anthropics_cache_marks_can_be_switched_off() -> None:
    with Server("anthropic") as server:
        ask(server)
        ask(server, prompt_caching=False)
        assert [json.dumps(asked).count("cache_control") for asked in server.requests] == [2, 0]
