"""What every vendor's driver must do, against a server that speaks the vendor's wire format."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.providers.servers import KEY, MODEL, USAGE, Plan, Server
from workspaces.providers import faults, limits, make_provider
from workspaces.providers.base import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    ProviderConfig,
    ProviderError,
    RawToolCall,
    TokenUsage,
    ToolSchema,
)
from workspaces.wire.driving import CallInterrupted

CALLS = (
    ("call_a", "write_file", ('{"path": "a', '.txt", "con', 'tent": "grüße"}')),
    ("call_b", "finish", ('{"summary": "done"}',)),
)
TOOL = ToolSchema("write_file", "Write a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
USER = ChatMessage("user", "hello")


@pytest.fixture(params=["openai", "anthropic"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(request.param) as running:
        yield running


def ask(
    server: Server,
    *messages: ChatMessage,
    key: str = KEY,
    model: str = MODEL,
    timeout_s: float = 10.0,
    options: dict[str, Any] | None = None,
    base_url: str = "",
    **how: Any,
) -> ChatReply:
    config = ProviderConfig(base_url or server.base_url, key, timeout_s, options or {})
    request = ChatRequest(model, messages or (USER,), (TOOL,), max_output_tokens=99, temperature=0.5)
    return make_provider(server.vendor, config).complete(request, **how)


def fails(server: Server, **how: Any) -> ProviderError:
    """The error of a call that must fail; the key is nowhere in it, nor in what a traceback prints."""
    with pytest.raises(ProviderError) as caught:
        ask(server, **how)
    key = how.get("key", KEY)
    everything = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(vars(caught.value))
    assert not key or key not in everything
    assert KEY not in everything
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def test_text_arrives_in_pieces_and_as_a_whole(server: Server) -> None:
    server.plans = [Plan(text=("Good ", "mor", "ning ☕"))]
    heard: list[str] = []
    reply = ask(server, on_text=heard.append)
    assert heard == ["Good ", "mor", "ning ☕"]
    assert reply.text == "Good morning ☕"
    assert (reply.finish_reason, reply.tool_calls) == ("stop", ())
    assert (reply.model, reply.response_id) == (MODEL, "r1")
    assert reply.first_token_s is not None
    assert 0 < reply.first_token_s <= reply.latency_s


def test_calls_streamed_in_pieces_are_put_together(server: Server) -> None:
    server.plans = [Plan(text=("I write. ",), calls=CALLS, finish="tool_calls")]
    reply = ask(server)
    assert reply.finish_reason == "tool_calls"
    assert reply.text == "I write. "
    assert reply.tool_calls == (
        RawToolCall("call_a", "write_file", '{"path": "a.txt", "content": "grüße"}'),
        RawToolCall("call_b", "finish", '{"summary": "done"}'),
    )


def test_arguments_cut_at_the_token_limit_stay_as_they_came(server: Server) -> None:
    server.plans = [Plan(calls=(("c1", "write_file", ('{"path": "a', ".t")),), finish="length")]
    reply = ask(server)
    assert reply.finish_reason == "length"
    assert reply.tool_calls[0].arguments == '{"path": "a.t'


def test_usage_is_disjoint_whatever_the_vendors_form(server: Server) -> None:
    reply = ask(server)
    assert reply.usage == TokenUsage(
        input_tokens=USAGE["input"],
        output_tokens=USAGE["output"],
        cached_input_tokens=USAGE["cached"],
        cache_write_tokens=USAGE["written"],
        reasoning_tokens=USAGE["reasoning"],
    )
    assert reply.usage.prompt_tokens == 100


def test_usage_is_none_when_the_server_tells_none(server: Server) -> None:
    server.plans = [Plan(text=("ok",), usage=False)]
    assert ask(server).usage is None


@pytest.mark.parametrize(("wire", "ours"), [("length", "length"), ("refusal", "content_filter"), ("stop", "stop")])
def test_finish_reasons_have_one_name(server: Server, wire: str, ours: str) -> None:
    server.plans = [Plan(text=("ok",), finish=wire)]
    assert ask(server).finish_reason == ours


def test_a_server_that_does_not_stream_is_read_all_the_same(server: Server) -> None:
    server.plans = [Plan(text=("whole",), calls=CALLS[1:], finish="tool_calls", streams=False)]
    reply = ask(server)
    assert reply.text == "whole"
    assert reply.tool_calls == (RawToolCall("call_b", "finish", '{"summary": "done"}'),)
    assert reply.usage is not None
    assert reply.usage.output_tokens == USAGE["output"]


def test_the_request_says_what_was_asked(server: Server) -> None:
    ask(server, ChatMessage("system", "Be brief."), USER, options={"extra_body": {"seed": 7}})
    sent = server.requests[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"], sent["stream"]) == (MODEL, 99, 0.5, True)
    assert sent["seed"] == 7
    if server.vendor == "openai":
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
        assert sent["tools"][0]["function"]["parameters"] == dict(TOOL.parameters)
    else:
        assert sent["system"][0]["text"] == "Be brief."
        assert [message["role"] for message in sent["messages"]] == ["user"]
        assert sent["tools"][0]["input_schema"] == dict(TOOL.parameters)


# --- history that a strict server must accept


def test_a_conversation_with_calls_and_results_is_accepted(server: Server) -> None:
    reply = ask(
        server,
        ChatMessage("system", "Be brief."),
        USER,
        ChatMessage("assistant", "", (RawToolCall("c1", "write_file", "{}"), RawToolCall("c2", "finish", "{}"))),
        ChatMessage("tool", "wrote it", tool_call_id="c1"),
        ChatMessage("tool", "", tool_call_id="c2"),
        ChatMessage("user", "go on"),
        ChatMessage("user", "please"),
        ChatMessage("assistant", "  "),
        ChatMessage("user", ""),
    )
    assert reply.text == "ok"


def test_arguments_that_are_no_json_are_echoed_in_a_form_that_is(server: Server) -> None:
    broken = '{"path": "a.txt", "content": "hel'
    ask(
        server,
        USER,
        ChatMessage("assistant", "", (RawToolCall("c1", "write_file", broken),)),
        ChatMessage("tool", "error: cut off", tool_call_id="c1"),
    )
    assert "_unparsed" in str(server.requests[0])
    assert "a.txt" in str(server.requests[0])


def test_results_out_of_order_lost_calls_and_odd_names_are_accepted(server: Server) -> None:
    ask(
        server,
        USER,
        ChatMessage("tool", "an old result", tool_call_id="gone"),
        ChatMessage("assistant", "", (RawToolCall("c:1", "write file!", "[1]"), RawToolCall("c2", "", "{}"))),
        ChatMessage("user", "a nudge"),
        ChatMessage("tool", "first result", tool_call_id="c:1"),
    )
    sent = str(server.requests[0])
    assert "an old result" in sent
    assert "no result was recorded" in sent
    assert "a nudge" in sent


def test_half_a_surrogate_pair_and_nul_can_be_sent_and_received(server: Server) -> None:
    server.plans = [Plan(text=("\ud83d", "\ude00 a\x00b \udc00"))]
    heard: list[str] = []
    reply = ask(server, ChatMessage("user", "x\ud83dy\x00z"), on_text=heard.append)
    assert reply.text == "😀 a\ufffdb \ufffd"
    for text in (reply.text, *heard):
        text.encode("utf-8")
        assert "\x00" not in text


# --- errors


def test_a_wrong_key_is_permanent_and_never_repeated(server: Server) -> None:
    error = fails(server, key="sk-wrong-key-9876543210")
    assert (error.kind, error.permanent, error.status) == ("auth", True, 401)
    assert "127.0.0.1" in str(error)
    assert "the key was refused" in str(error)


def test_a_key_with_a_line_break_is_refused_before_it_is_sent(server: Server) -> None:
    error = fails(server, key="sk-abc\ndef-0123456789")
    assert (error.kind, error.permanent) == ("auth", True)
    assert server.requests == []


def test_an_unknown_model_is_permanent(server: Server) -> None:
    error = fails(server, model="no-such-model")
    assert (error.kind, error.permanent, error.status) == ("not_found", True, 404)
    assert "no-such-model" in str(error)


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        (("retry-after", "7"), 7, 7),
        (("retry-after", "DATE"), 8, 10.5),
        (("retry-after-ms", "1500"), 1.5, 1.5),
        (("retry-after", "soon"), None, None),
    ],
)
def test_a_rate_limit_says_how_long_to_wait(
    server: Server, header: tuple[str, str], low: float | None, high: float | None
) -> None:
    if header[1] == "DATE":
        header = (header[0], format_datetime(datetime.now(UTC) + timedelta(seconds=10), usegmt=True))
    server.plans = [Plan(status=429, headers=(header,), error={"message": "slow down", "type": "rate_limit_error"})]
    error = fails(server)
    assert (error.kind, error.permanent, error.status) == ("rate_limit", False, 429)
    if low is None or high is None:
        assert error.retry_after_s is None
    else:
        assert error.retry_after_s is not None
        assert low <= error.retry_after_s <= high
    assert len(server.requests) == 1  # no retries of its own


@pytest.mark.parametrize("plan", [Plan(text=("ok",)), Plan(text=("ok",), streams=False), Plan(status=529)])
def test_what_an_answer_says_of_its_limits_comes_with_it(server: Server, plan: Plan) -> None:
    headers = (
        ("x-ratelimit-limit-requests", "60"),
        ("anthropic-ratelimit-output-tokens-limit", "8000"),
        ("anthropic-ratelimit-output-tokens-remaining", "7900"),
        ("retry-after", "7"),
    )
    server.plans = [replace(plan, headers=headers)]
    told = fails(server).rate if plan.status != 200 else ask(server).rate
    assert told is not None
    assert (told.limits, told.remaining) == ({"requests": 60, "output_tokens": 8000}, {"output_tokens": 7900})
    assert told.retry_after_s == 7.0
    server.plans = [replace(plan, headers=())]
    assert (fails(server).rate if plan.status != 200 else ask(server).rate) is None


@pytest.mark.parametrize(
    ("status", "error", "kind", "permanent"),
    [
        (400, {"message": "bad field"}, "bad_request", True),
        (400, {"message": "This model's maximum context length is 8192 tokens"}, "context_length", True),
        (403, {"message": "not allowed"}, "auth", True),
        (413, {"message": "too large"}, "context_length", True),
        (429, {"message": "no credit", "code": "insufficient_quota"}, "rate_limit", True),
        (500, {"message": "oops"}, "server", False),
        (502, {}, "server", False),
        (503, {"message": "busy"}, "overloaded", False),
        (504, {"message": "late"}, "timeout", False),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, "overloaded", False),
        (307, {"message": "elsewhere"}, "bad_request", True),
    ],
)
def test_every_status_has_a_kind(
    server: Server, status: int, error: dict[str, Any], kind: str, permanent: bool
) -> None:
    server.plans = [Plan(status=status, error=error)]
    found = fails(server)
    assert (found.kind, found.permanent, found.status) == (kind, permanent, status)
    assert len(server.requests) == 1


def test_a_redirect_is_not_followed_with_the_key(server: Server) -> None:
    with Server(server.vendor) as elsewhere:
        server.plans = [Plan(status=307, headers=(("location", elsewhere.base_url),), error={})]
        fails(server)
        assert elsewhere.requests == []


def test_an_error_in_the_middle_of_the_stream_is_an_error(server: Server) -> None:
    server.plans = [Plan(text=("half",), mid_stream_error={"type": "overloaded_error", "message": f"busy {KEY}"})]
    error = fails(server)
    assert (error.kind, error.permanent) == ("overloaded", False)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"data: {not json\n\n", "text/event-stream"),
        (b"event: message_start\ndata: {not json\n\n", "text/event-stream"),
        (b"<html>hello</html>", "text/html"),
        (b"{not json", "application/json"),
        (b'{"hello": "world"}', "application/json"),
        (b"[]", "application/json"),
        (b"", "text/event-stream"),
    ],
)
def test_what_is_no_reply_is_malformed(server: Server, body: bytes, content_type: str) -> None:
    server.plans = [Plan(body=body, content_type=content_type)]
    error = fails(server)
    assert (error.kind, error.permanent) == ("malformed", False)


def many_calls(count: int) -> Plan:
    return Plan(calls=tuple((f"call_{at}", "finish", ("{}",)) for at in range(count)))


def test_a_reply_of_very_many_calls_is_malformed(server: Server) -> None:
    server.plans = [many_calls(limits.MAX_CALLS)]
    assert len(ask(server).tool_calls) == limits.MAX_CALLS
    server.plans = [many_calls(limits.MAX_CALLS + 1)]
    error = fails(server)
    assert (error.kind, error.permanent) == ("malformed", False)
    assert "tool calls" in str(error)


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_without_end_is_given_up(server: Server, streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CHARS", 10_000)
    server.plans = [Plan(text=("a" * 5_000,) * 3, streams=streams)]
    assert "characters" in str(fails(server))
    server.plans = [Plan(calls=(("c", "write_file", ('{"path": "', "a" * 10_000, '"}')),), streams=streams)]
    assert "characters" in str(fails(server))


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_a_body_or_a_line_without_end_is_given_up(server: Server, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", 1_000_000)
    monkeypatch.setattr(limits, "MAX_WHOLE_BYTES", 1_000_000)
    server.plans = [Plan(body=b"data: " + b"a" * 3_000_000, content_type=kind)]
    error = fails(server)
    assert error.kind == "malformed"
    assert "larger than" in str(error)


def test_a_packed_reply_is_not_unpacked(server: Server) -> None:
    """A few kilobytes unfold to gigabytes."""
    packed = gzip.compress(b"\0" * 10_000_000)
    server.plans = [Plan(body=packed, content_type="application/json", headers=(("Content-Encoding", "gzip"),))]
    error = fails(server)
    assert error.kind == "malformed"
    assert "packed" in str(error)
    sent = {name.lower(): value for name, value in server.headers[-1].items()}
    assert sent["accept-encoding"] == "identity"


def test_counts_that_nobody_can_store_count_as_none() -> None:
    assert [faults.count(value) for value in (10**30, -5, 1e300, "7", None, True)] == [0] * 6
    assert faults.count(1_000_000_000) == 1_000_000_000


def test_endless_ids_and_names_are_cut_as_they_are_stored(server: Server) -> None:
    server.plans = [Plan(calls=(("i" * 100_000, "n" * 100_000, ("{}",)),))]
    (call,) = ask(server).tool_calls
    assert 0 < len(call.call_id) <= 200
    assert len(call.name) <= 200


@pytest.mark.parametrize("drop", ["broken", "clean"])
def test_a_connection_that_drops_in_the_middle_is_no_reply(server: Server, drop: Any) -> None:
    server.plans = [Plan(text=("half ",), drop=drop)]
    heard: list[str] = []
    error = fails(server, on_text=heard.append)
    assert heard == ["half "]
    assert (error.kind, error.permanent) == ("connection", False)
    assert "broke off" in str(error)


@pytest.mark.parametrize("hang", ["before_answer", "before_token", "after_text"])
def test_an_order_drops_the_request_at_once(server: Server, hang: Any) -> None:
    server.plans = [Plan(text=("half ",), hang=hang)]
    order = threading.Event()
    ordered_at: list[float] = []

    def give_order() -> None:
        ordered_at.append(time.monotonic())
        order.set()

    threading.Timer(0.3, give_order).start()
    with pytest.raises(CallInterrupted) as caught:
        ask(server, interrupt=order)
    assert time.monotonic() - ordered_at[0] < 0.5
    assert caught.value.partial == ("half " if hang == "after_text" else "")
    assert server.client_gone.wait(1.0)  # the server sees that nobody listens any more


def test_an_order_given_before_sends_nothing(server: Server) -> None:
    order = threading.Event()
    order.set()
    with pytest.raises(CallInterrupted):
        ask(server, interrupt=order)
    assert server.requests == []


@pytest.mark.parametrize("hang", ["before_answer", "after_text"])
def test_the_timeout_is_for_the_whole_call(server: Server, hang: Any) -> None:
    server.plans = [Plan(text=("half ",), hang=hang)]
    started = time.monotonic()
    error = fails(server, timeout_s=0.4)
    assert time.monotonic() - started < 1.0
    assert (error.kind, error.permanent) == ("timeout", False)
    assert "0.4 s" in str(error)


def test_a_port_where_nothing_listens(server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    error = fails(server, base_url=f"http://127.0.0.1:{port}/v1")
    assert (error.kind, error.permanent) == ("connection", False)
    assert f"127.0.0.1:{port}" in str(error)
    assert "refused" in str(error)


def test_a_host_that_does_not_exist(server: Server) -> None:
    error = fails(server, base_url="http://no-such-host.invalid/v1")
    assert (error.kind, error.permanent) == ("connection", False)
    assert "no-such-host.invalid" in str(error)
    assert "cannot be found" in str(error)


def test_https_where_http_is_spoken(server: Server) -> None:
    error = fails(server, base_url=server.base_url.replace("http://", "https://"))
    assert (error.kind, error.permanent) == ("connection", False)
    assert "http or https" in str(error)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://a/b", "http://", "http://[::1", "http://a:99999"])
def test_what_is_no_web_address_is_permanent(server: Server, url: str) -> None:
    error = fails(server, base_url=url)
    assert (error.kind, error.permanent) == ("bad_request", True)


def test_the_environments_keys_are_never_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-host")
    error = fails(server, key="")
    assert error.kind == "auth"
    assert KEY not in str(server.headers)
    assert "org-of-the-host" not in str(server.headers)


def test_many_threads_share_one_provider(server: Server) -> None:
    config = ProviderConfig(server.base_url, KEY)
    provider = make_provider(server.vendor, config)
    replies: list[str] = []
    threads = [
        threading.Thread(target=lambda: replies.append(provider.complete(ChatRequest(MODEL, (USER,))).text))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == ["ok"] * 12


def test_the_config_does_not_show_the_key() -> None:
    assert KEY not in repr(ProviderConfig("http://localhost", KEY))


def test_a_web_page_instead_of_an_answer_is_named_and_not_quoted() -> None:
    body = "<!DOCTYPE html>\n<html><head><title>Sign in &amp; go</title><script>var a</script></head></html>"
    error = faults.refusal("host", status=404, body=body)
    assert "a web page titled “Sign in & go”" in str(error)
    assert "script" not in str(error)
