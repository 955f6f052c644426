"""Small servers that speak the vendors' wire formats, so that the drivers run against a real socket.

They are strict where the real ones are: a wrong key, an unknown model, history that does not fit, arguments that
are no JSON (a real llama.cpp server answered 500 to those). A `Plan` says what the model does next.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

KEY = "sk-test-0123456789abcdefghij"
MODEL = "test-model"
OTHER_MODEL = "gpt-4o-mini"  # has a price and a window in the maintained list
USAGE = {"input": 70, "cached": 20, "written": 10, "output": 12, "reasoning": 4}


@dataclass(frozen=True)
class Plan:
    """Text comes in pieces, and so do each call's arguments: (id, name, pieces)."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    finish: str = "stop"
    streams: bool = True  # False: answers with one JSON document
    hang: Literal["", "before_answer", "before_token", "after_text"] = ""
    drop: Literal["", "broken", "clean"] = ""  # after the text
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    error: dict[str, Any] = field(default_factory=dict)  # in the body when status is not 200
    mid_stream_error: dict[str, Any] = field(default_factory=dict)
    body: bytes | None = None  # sent as it is, with `content_type`
    content_type: str = "text/event-stream"
    events: tuple[dict[str, Any], ...] = ()  # sent instead of what text and calls make
    usage: bool = True
    refuses: str = ""  # a parameter that this server answers 400 to


class Server:
    """One vendor's API on a free local port; serves plans in turn, the last one again and again."""

    def __init__(self, vendor: Literal["openai", "anthropic"]) -> None:
        self.vendor = vendor
        self.plans: list[Plan] = [Plan(text=("ok",))]
        self.requests: list[dict[str, Any]] = []
        self.counts: Callable[[dict[str, Any]], int] | None = None  # a request → what is counted of its prompt
        self.headers: list[dict[str, str]] = []
        self.client_gone = threading.Event()
        self.closing = threading.Event()
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        root = f"http://127.0.0.1:{self._http.server_address[1]}"
        return f"{root}/v1" if self.vendor == "openai" else root

    def next_plan(self) -> Plan:
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle of an answer is what several tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(raw)
        self.owner.requests.append(asked)
        self.owner.headers.append({key.lower(): value for key, value in self.headers.items()})
        if self.owner.counts is not None:
            asked["counted"] = self.owner.counts(asked)
        plan = self.owner.next_plan()
        wire = _OPENAI if self.owner.vendor == "openai" else _ANTHROPIC
        if plan.hang == "before_answer":
            self._hang()
            return
        problem = wire.refuse(self.path, self.headers, asked, plan)
        if plan.status != 200:
            problem = (plan.status, plan.error)
        if problem is not None:
            self._send(problem[0], wire.error(problem[1]), "application/json", plan.headers)
        elif plan.body is not None:
            self._send(200, plan.body, plan.content_type, plan.headers)
        elif not plan.streams:
            self._send(200, json.dumps(wire.whole(plan, asked)).encode(), "application/json", plan.headers)
        else:
            self._stream(wire, plan, asked)

    def _send(self, status: int, body: bytes, kind: str, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, wire: Any, plan: Plan, asked: dict[str, Any]) -> None:
        chunked = plan.drop != "clean"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header(*(("transfer-encoding", "chunked") if chunked else ("connection", "close")))
        for key, value in plan.headers:
            self.send_header(key, value)
        self.end_headers()
        if plan.hang == "before_token":
            self._hang()
            return
        for event in wire.stream(plan, asked):
            if event == "TEXT_END":
                if plan.hang == "after_text":
                    self._hang()
                    return
                if plan.drop:
                    self.close_connection = True
                    return
                continue
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = not chunked

    def _hang(self) -> None:
        """Say nothing until the client goes away or the server closes."""
        self.close_connection = True
        until = time.monotonic() + 20
        while not self.owner.closing.is_set() and time.monotonic() < until:
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                self.owner.client_gone.set()
                return


Problem = tuple[int, dict[str, Any]]


class _OpenAIWire:
    finish = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "refusal": "content_filter"}

    def refuse(self, path: str, headers: Any, asked: dict[str, Any], plan: Plan) -> Problem | None:
        if path != "/v1/chat/completions":
            return 404, {"message": f"no such path: {path}"}
        given = headers.get("authorization", "")
        if given != f"Bearer {KEY}":
            # real servers echo what they were given
            return 401, {"message": f"Incorrect API key provided: {given[7:]}.", "code": "invalid_api_key"}
        if asked["model"] not in (MODEL, OTHER_MODEL):
            return 404, {"message": f"The model {asked['model']} does not exist", "code": "model_not_found"}
        if plan.refuses == "stream_options" and "stream_options" in asked:
            return 400, {"message": "Unrecognized request argument supplied: stream_options"}
        if plan.refuses == "max_tokens" and "max_tokens" in asked:
            said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return 400, {"message": said, "code": "unsupported_parameter"}
        return self._refuse_history(asked["messages"])

    def _refuse_history(self, messages: list[dict[str, Any]]) -> Problem | None:
        waiting: list[str] = []
        for message in messages:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return 400, {"message": "a tool message must follow its tool call"}
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                return 400, {"message": f"tool calls without a result: {waiting}"}
            for call in message.get("tool_calls", ()):
                waiting.append(call["id"])
                try:
                    json.loads(call["function"]["arguments"])
                except ValueError:
                    return 500, {"message": "Failed to parse tool call arguments as JSON", "code": 500}
        return None

    def error(self, error: dict[str, Any]) -> bytes:
        return json.dumps({"error": error}).encode()

    def usage(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "counted" in asked:
            return {"prompt_tokens": asked["counted"], "completion_tokens": USAGE["output"]}
        return {
            "prompt_tokens": USAGE["input"] + USAGE["cached"] + USAGE["written"],
            "completion_tokens": USAGE["output"],
            "total_tokens": 112,
            "prompt_tokens_details": {
                "cached_tokens": USAGE["cached"],
                "cache_write_tokens": USAGE["written"],
            },
            "completion_tokens_details": {"reasoning_tokens": USAGE["reasoning"]},
        }

    def whole(self, plan: Plan, asked: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(plan.text)}
        if plan.calls:
            message["tool_calls"] = [
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": "".join(pieces)}}
                for call_id, name, pieces in plan.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.finish[plan.finish]}
        return {
            "id": "r1",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [choice],
            "usage": self.usage(asked),
        }

    def stream(self, plan: Plan, asked: dict[str, Any]) -> Iterator[str]:
        def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            head = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
            return _sse(None, {**head, "choices": [choice], **more})

        yield ": a comment\n\n"
        yield chunk({"role": "assistant", "content": ""})
        for piece in plan.text:
            yield chunk({"content": piece})
        yield "TEXT_END"
        if plan.mid_stream_error:
            yield _sse(None, {"error": plan.mid_stream_error})
            return
        for delta in plan.events:
            yield chunk(delta)
        for at, (call_id, name, pieces) in enumerate(plan.calls):
            first = {"name": name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": at, "id": call_id, "type": "function", "function": first}]})
            for piece in pieces:
                yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        yield chunk({}, self.finish[plan.finish])
        if plan.usage and asked.get("stream_options", {}).get("include_usage"):
            yield _sse(None, {"id": "r1", "model": asked["model"], "choices": [], "usage": self.usage(asked)})
        yield "data: [DONE]\n\n"


class _AnthropicWire:
    finish = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}

    def refuse(self, path: str, headers: Any, asked: dict[str, Any], plan: Plan) -> Problem | None:
        if path != "/v1/messages":
            return 404, {"type": "not_found_error", "message": f"no such path: {path}"}
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if given != KEY:
            return 401, {"type": "authentication_error", "message": f"invalid x-api-key: {given}"}
        if asked["model"] != MODEL:
            return 404, {"type": "not_found_error", "message": f"model: {asked['model']}"}
        said = self._refuse_history(asked)
        return (400, {"type": "invalid_request_error", "message": said}) if said else None

    def _refuse_history(self, asked: dict[str, Any]) -> str:
        role = "assistant"
        waiting: list[str] = []
        for message in asked["messages"]:
            if message["role"] == role:
                return "roles must alternate"
            role = message["role"]
            results = [block for block in message["content"] if block["type"] == "tool_result"]
            if [block["tool_use_id"] for block in results] != waiting:
                return f"tool_use ids without tool_result: {waiting}"
            if results and message["content"][: len(results)] != results:
                return "tool_result blocks must come first"
            for block in message["content"]:
                if block["type"] == "text" and not block["text"].strip():
                    return "text content blocks must contain non-whitespace text"
                if block["type"] == "tool_use" and not isinstance(block["input"], dict):
                    return "input should be an object"
            waiting = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        return ""

    def error(self, error: dict[str, Any]) -> bytes:
        return json.dumps({"type": "error", "error": error}).encode()

    def usage(self, output: int) -> dict[str, Any]:
        return {
            "input_tokens": USAGE["input"],
            "cache_read_input_tokens": USAGE["cached"],
            "cache_creation_input_tokens": USAGE["written"],
            "output_tokens": output,
            "output_tokens_details": {"thinking_tokens": USAGE["reasoning"]},
        }

    def whole(self, plan: Plan, asked: dict[str, Any]) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": "".join(plan.text)}] if plan.text else []
        content += [
            {"type": "tool_use", "id": call_id, "name": name, "input": json.loads("".join(pieces))}
            for call_id, name, pieces in plan.calls
        ]
        return {
            "id": "r1",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content,
            "stop_reason": self.finish[plan.finish],
            "usage": self.usage(USAGE["output"]),
        }

    def stream(self, plan: Plan, asked: dict[str, Any]) -> Iterator[str]:
        def event(kind: str, **fields: Any) -> str:
            return _sse(kind, {"type": kind, **fields})

        usage = {"usage": self.usage(1)} if plan.usage else {}
        yield event("message_start", message={**self.whole(Plan(), asked), "stop_reason": None, "usage": None, **usage})
        yield event("ping")
        if plan.text:
            yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            for piece in plan.text:
                yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield "TEXT_END"
        if plan.mid_stream_error:
            yield event("error", error=plan.mid_stream_error)
            return
        if plan.text:
            yield event("content_block_stop", index=0)
        for at, (call_id, name, pieces) in enumerate(plan.calls, start=len(plan.text[:1])):
            block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            yield event("content_block_start", index=at, content_block=block)
            for piece in pieces:
                delta = {"type": "input_json_delta", "partial_json": piece}
                yield event("content_block_delta", index=at, delta=delta)
            yield event("content_block_stop", index=at)
        told = {"usage": {"output_tokens": USAGE["output"]}} if plan.usage else {}
        yield event("message_delta", delta={"stop_reason": self.finish[plan.finish]}, **told)
        yield event("message_stop")


def _sse(event: str | None, data: dict[str, Any]) -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"


_OPENAI = _OpenAIWire()
_ANTHROPIC = _AnthropicWire()
