"""The provider contract: one chat request to a model, streamed, with errors told apart. Never imports a vendor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from workspaces.domain.rate_headers import RateHint
from workspaces.wire.driving import CallInterrupted as CallInterrupted  # part of the contract

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "other"]


@dataclass(frozen=True, slots=True)
class RawToolCall:
    """A call as the model wrote it; `arguments` is its text and may not be JSON."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """`tool_calls` only on assistant messages; `tool_call_id` only on tool messages."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[RawToolCall, ...] = ()
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolSchema:
    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON Schema of an object


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`purpose` says what it is for (domain/states.ModelCallPurpose). It is never sent; a script can tell by it."""

    model: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int = 4096
    temperature: float | None = None
    purpose: str = "step"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Disjoint token counts: `input_tokens` excludes cached and cache-write tokens, whatever the vendor's form.

    `reasoning_tokens` is the part of `output_tokens` spent on reasoning; `cache_write_1h_tokens` is the part of
    `cache_write_tokens` that stays in the cache for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cached_input_tokens + self.cache_write_tokens


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`usage` is None when the provider told none; `rate` when it said nothing of its limits."""

    text: str
    tool_calls: tuple[RawToolCall, ...]
    finish_reason: FinishReason
    usage: TokenUsage | None
    model: str
    response_id: str = ""
    latency_s: float = 0.0
    first_token_s: float | None = None
    rate: RateHint | None = None


class ProviderError(Exception):
    """The call failed. `permanent`: asking again the same way cannot work (wrong key, unknown model, bad request).

    `kind`: "auth", "not_found", "bad_request", "context_length", "rate_limit", "overloaded", "server",
    "timeout", "connection", "malformed". `retry_after_s` is what the provider asked for, if it did;
    `rate` is what it said of its limits.
    The message names the address and the cause and never holds a key.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        permanent: bool,
        retry_after_s: float | None = None,
        status: int | None = None,
        rate: RateHint | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.permanent = permanent
        self.retry_after_s = retry_after_s
        self.status = status
        self.rate = rate


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """How to reach one provider. `api_key` is a secret: never logged, never in an error."""

    base_url: str = ""
    api_key: str = field(default="", repr=False)
    timeout_s: float = 120.0
    options: Mapping[str, Any] = field(default_factory=dict)  # vendor-specific, from the profile


class Provider(Protocol):
    name: str

    def complete(
        self,
        request: ChatRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        interrupt: threading.Event | None = None,
    ) -> ChatReply:
        """One streamed request; no retries of its own. `on_text` gets each text delta as it arrives.

        Raises ProviderError; CallInterrupted within 0.25 s of `interrupt`, also before the first token.
        """
