"""OpenAI Chat Completions with tools, streamed, at any base URL: OpenAI, vLLM, Ollama, llama.cpp, LiteLLM.

Built on OpenAI's SDK with its retries switched off. Nothing is taken from the process's environment: a call
uses the key of its config and no other. Redirects are not followed, so that a key stays where it was sent.

Options (all optional):
- `max_tokens_param`: "max_tokens" or "max_completion_tokens". Default: the latter at OpenAI and Azure.
- `include_usage`: false leaves `stream_options` out.
- `tool_choice`: "auto", "required", …, sent as it is when there are tools.
- `headers`: more request headers; `extra_body`: more fields of the request's body.

When a server refuses `stream_options`, or the one limit parameter in favour of the other, the same request is
sent once more without it, and the provider remembers. That is a negotiation of form, not a retry.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import openai

from workspaces.domain import rate_headers
from workspaces.domain.text import clean_text
from workspaces.providers import faults, limits
from workspaces.providers.asking import ask
from workspaces.providers.assembly import CallAssembler, field_of, text_of
from workspaces.providers.base import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    FinishReason,
    ProviderConfig,
    ProviderError,
    TokenUsage,
)
from workspaces.providers.history import sendable
from workspaces.wire.driving import tls_context

DEFAULT_BASE_URL = "https://api.openai.com/v1"
_CONNECT_TIMEOUT_S = 20.0
_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}


@dataclass(slots=True)
class _Arriving:
    """The reply so far."""

    started: float = field(default_factory=time.monotonic)
    text: list[str] = field(default_factory=list)
    chars: int = 0
    calls: CallAssembler = field(default_factory=CallAssembler)
    finish: str = ""
    usage: TokenUsage | None = None
    model: str = ""
    response_id: str = ""
    first_token_s: float | None = None
    rate: rate_headers.RateHint | None = None
    chunks: int = 0

    def joined(self) -> str:
        return clean_text("".join(self.text))


class OpenAIProvider:
    """Thread-safe: every call has a client of its own."""

    name = "openai"

    def __init__(self, config: ProviderConfig) -> None:
        self._config = config
        self._base_url = config.base_url or DEFAULT_BASE_URL
        self._where = faults.address(self._base_url)
        self._secrets = faults.secrets_of(config)
        self._include_usage = bool(config.options.get("include_usage", True))
        self._limit_param = str(config.options.get("max_tokens_param") or _limit_param(self._base_url))

    def complete(
        self,
        request: ChatRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        interrupt: threading.Event | None = None,
    ) -> ChatReply:
        faults.checked_url(self._base_url)
        key = faults.checked_key(self._config, self._where)
        arriving = _Arriving()
        return ask(
            lambda: self._negotiate(key, request, arriving, on_text),
            read=lambda: self._reply(arriving, request),
            explain=self._error,
            vendor_error=openai.OpenAIError,
            where=self._where,
            timeout_s=self._config.timeout_s,
            interrupt=interrupt,
            partial=arriving.joined,
        )

    async def _negotiate(
        self, key: str, request: ChatRequest, arriving: _Arriving, on_text: Callable[[str], None] | None
    ) -> None:
        http = openai.DefaultAsyncHttpxClient(
            verify=tls_context(), follow_redirects=False, event_hooks=limits.counted(self._where)
        )
        timeout = httpx2.Timeout(self._config.timeout_s, connect=min(_CONNECT_TIMEOUT_S, self._config.timeout_s))
        given = self._config.options.get("headers")
        headers = {str(k): str(v) for k, v in given.items()} if isinstance(given, Mapping) else {}
        async with openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=self._base_url,
            max_retries=0,
            timeout=timeout,
            http_client=http,
            default_headers=headers | limits.UNPACKED,
        ) as client:
            client.organization = client.project = client.admin_api_key = None  # the SDK reads the environment
            for last in (False, False, True):
                try:
                    await self._stream(client, request, arriving, on_text)
                    return
                except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                    if last or not self._adapt(str(error.message)):
                        raise

    def _adapt(self, complaint: str) -> bool:
        """Whether the complaint is about a form that can be changed; it is changed then."""
        if self._include_usage and ("stream_options" in complaint or "include_usage" in complaint):
            self._include_usage = False
            return True
        other = "max_completion_tokens" if self._limit_param == "max_tokens" else "max_tokens"
        chosen = "max_tokens_param" in self._config.options
        if not chosen and f"'{self._limit_param}'" in complaint and f"'{other}'" in complaint:
            self._limit_param = other
            return True
        return False

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        options = self._config.options
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message) for message in sendable(request.messages)],
            "stream": True,
            self._limit_param: request.max_output_tokens,
        }
        if self._include_usage:
            body["stream_options"] = {"include_usage": True}
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
            if options.get("tool_choice"):
                body["tool_choice"] = options["tool_choice"]
        if isinstance(options.get("extra_body"), Mapping):
            body["extra_body"] = dict(options["extra_body"])
        return body

    async def _stream(
        self,
        client: openai.AsyncOpenAI,
        request: ChatRequest,
        arriving: _Arriving,
        on_text: Callable[[str], None] | None,
    ) -> None:
        create = cast(Any, client.chat.completions.create)  # the body is checked by the server, not by overloads
        stream = await create(**self._body(request))
        async with stream:
            arriving.rate = rate_headers.read(stream.response.headers)
            kind = stream.response.headers.get("content-type", "").lower()
            if "json" in kind and "event-stream" not in kind:  # the server does not stream: one whole reply
                whole = json.loads(await stream.response.aread())
                if isinstance(whole, dict) and whole.get("error"):
                    raise faults.refusal(self._where, status=None, body=whole, secrets=self._secrets)
                _take(whole, "message", arriving, on_text)
                return
            async for chunk in stream:
                _take(chunk, "delta", arriving, on_text)
                limits.check_size(self._where, arriving.chars + arriving.calls.chars, len(arriving.calls))

    def _reply(self, arriving: _Arriving, request: ChatRequest) -> ChatReply:
        limits.check_size(self._where, arriving.chars + arriving.calls.chars, len(arriving.calls))
        calls = arriving.calls.calls()
        if not arriving.chunks:
            raise faults.unreadable(self._where, "it holds no completion; is the base URL an OpenAI-compatible one?")
        if not arriving.finish:
            raise faults.unreachable(self._where, EOFError())
        finish: FinishReason = _FINISH.get(arriving.finish, "other")
        if calls and finish == "stop":
            finish = "tool_calls"  # several servers say "stop" after a call
        return ChatReply(
            text=arriving.joined(),
            tool_calls=calls,
            finish_reason=finish,
            usage=arriving.usage,
            model=arriving.model or request.model,
            response_id=arriving.response_id,
            latency_s=time.monotonic() - arriving.started,
            first_token_s=arriving.first_token_s,
            rate=arriving.rate,
        )

    def _error(self, error: BaseException) -> ProviderError:
        if isinstance(error, openai.APIStatusError):
            return faults.refusal(
                self._where,
                status=error.status_code,
                body=error.body,
                headers=error.response.headers,
                secrets=self._secrets,
            )
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            if "ConnectTimeout" in repr(error.__cause__):
                return faults.unreachable(self._where, error)
            return faults.too_slow(self._where, self._config.timeout_s)
        if isinstance(error, openai.APIResponseValidationError):
            return faults.unreadable(self._where, "not what the API promises")
        if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
            body = error.body or {"message": error.message}
            return faults.refusal(self._where, status=None, body=body, secrets=self._secrets)
        return faults.unreachable(self._where, error)


def _limit_param(base_url: str) -> str:
    host = faults.host(base_url).lower()
    own = host == "api.openai.com" or host.endswith((".api.openai.com", ".openai.azure.com"))
    return "max_completion_tokens" if own else "max_tokens"


def _message(message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    return {
        "role": "assistant",
        "content": message.content or None,
        "tool_calls": [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ],
    }


def _take(chunk: object, part: str, arriving: _Arriving, on_text: Callable[[str], None] | None) -> None:
    """Add one chunk (`part` "delta") or a whole completion (`part` "message") to what has arrived."""
    arriving.model = text_of(field_of(chunk, "model")) or arriving.model
    arriving.response_id = text_of(field_of(chunk, "id")) or arriving.response_id
    told = _usage(field_of(chunk, "usage"))
    if told is not None and (told != TokenUsage() or arriving.usage is None):
        arriving.usage = told  # servers that tell it in every chunk count on; the last one tells all
    choices = field_of(chunk, "choices")
    if not isinstance(choices, list):
        return
    arriving.chunks += 1
    for choice in choices[:1]:
        delta = field_of(choice, part)
        arriving.finish = text_of(field_of(choice, "finish_reason")) or arriving.finish
        text = text_of(field_of(delta, "content")) + text_of(field_of(delta, "refusal"))
        pieces = field_of(delta, "tool_calls")
        if (text or pieces) and arriving.first_token_s is None:
            arriving.first_token_s = time.monotonic() - arriving.started
        arriving.calls.add(pieces)
        old_form = field_of(delta, "function_call")
        if old_form:
            arriving.calls.add([{"index": 0, "function": old_form}])
        if text:
            arriving.text.append(text)
            arriving.chars += len(text)
            if on_text is not None:
                on_text(clean_text(text))


def _usage(told: object) -> TokenUsage | None:
    """Cached and cache-write tokens are counted inside the prompt, reasoning inside the completion.

    Where the total is larger than both, the rest is reasoning that was counted outside (xAI names it, Gemini does not).
    Cached tokens stand in the prompt's details, or beside them (DeepSeek, Moonshot).
    """
    if told is None or field_of(told, "prompt_tokens") is None:
        return None
    prompt, output = faults.count(field_of(told, "prompt_tokens")), faults.count(field_of(told, "completion_tokens"))
    details = field_of(told, "prompt_tokens_details")
    elsewhere = ("prompt_cache_hit_tokens", "cached_tokens")
    told_cached = [field_of(details, "cached_tokens"), *(field_of(told, name) for name in elsewhere)]
    cached = min(prompt, faults.count(next((value for value in told_cached if value is not None), 0)))
    written = min(prompt - cached, faults.count(field_of(details, "cache_write_tokens")))
    reasoning = faults.count(field_of(field_of(told, "completion_tokens_details"), "reasoning_tokens"))
    outside = max(0, faults.count(field_of(told, "total_tokens")) - prompt - output)
    if outside and reasoning in (0, outside):
        output, reasoning = output + outside, outside
    return TokenUsage(
        input_tokens=prompt - cached - written,
        output_tokens=output,
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=min(reasoning, output),
    )
