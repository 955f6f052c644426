"""What vendors say of a call's tokens, in every form that is known of them, priced once each.

OpenAI-style servers count cached tokens inside the prompt and reasoning inside the completion; Anthropic-style servers
count cache reads and writes beside the input. The figures were computed by hand, from these prices: USD for a million
of input 2, cached 0.50, written to the cache 2.50, output 8 (reasoning is output).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from genai_prices import Usage, calc_price

from tests.providers.servers import KEY, MODEL, Plan, Server
from workspaces.domain.prices import OwnPrice, Unit, total
from workspaces.models import ProfileVersion
from workspaces.providers import make_provider
from workspaces.providers.base import ChatMessage, ChatRequest, ProviderConfig, TokenUsage
from workspaces.queries import price_list
from workspaces.queries.prices import PriceBook

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
PRICES = {Unit.INPUT: "2", Unit.CACHED_INPUT: "0.5", Unit.CACHE_WRITE: "2.5", Unit.OUTPUT: "8"}
BOOK = PriceBook(
    tuple(OwnPrice(at, MODEL, unit, Decimal(usd), NOW) for at, (unit, usd) in enumerate(PRICES.items())), NOW
)
REQUEST = ChatRequest(MODEL, (ChatMessage("user", "hello"),))
Units = dict[str, int]


@dataclass(frozen=True)
class Form:
    """`told`: as one document says it. `chunks`: as a stream says it, in order (default: `told`, at its end).

    `units`: what is booked; None where nothing was told.
    """

    vendor: Literal["openai", "anthropic"]
    told: dict[str, Any] | None
    units: Units | None
    usd: str | None
    chunks: tuple[dict[str, Any] | None, ...] = field(default=())


def openai(told: dict[str, Any] | None, units: Units | None, usd: str | None, *chunks: dict[str, Any] | None) -> Form:
    return Form("openai", told, units, usd, chunks or (None, told))


def anthropic(told: dict[str, Any] | None, units: Units | None, usd: str | None, *ends: dict[str, Any] | None) -> Form:
    """A stream says the prompt at its beginning, and the output (or all of it) at its end."""
    start = {**told, "output_tokens": 1} if told else None
    end = {"output_tokens": told["output_tokens"]} if told else None
    return Form("anthropic", told, units, usd, ends or (start, end))


PLAIN = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
# 1000 x 2 + 200 x 8
PLAIN_UNITS, PLAIN_USD = {"input_tokens": 1000, "output_tokens": 200}, "0.0036"
# 400 x 2 + 600 x 0.5 + 200 x 8
CACHED_UNITS, CACHED_USD = {"input_tokens": 400, "cached_input_tokens": 600, "output_tokens": 200}, "0.0027"
# 300 x 2 + 600 x 0.5 + 100 x 2.5 + 200 x 8
WRITTEN_UNITS = {"input_tokens": 300, "cached_input_tokens": 600, "cache_write_tokens": 100, "output_tokens": 200}
WRITTEN_USD = "0.00275"
THOUGHT_UNITS = {"input_tokens": 1000, "output_tokens": 50, "reasoning_tokens": 150}
BESIDE = {"input_tokens": 300, "cache_read_input_tokens": 600, "output_tokens": 200}
BOTH_KEPT = {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": 40}

FORMS = {
    "OpenAI: plain": openai(PLAIN, PLAIN_UNITS, PLAIN_USD),
    "OpenAI: cached inside the prompt": openai(
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 600, "audio_tokens": 0}}, CACHED_UNITS, CACHED_USD
    ),
    "OpenAI: cached and written inside the prompt": openai(
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 100}}, WRITTEN_UNITS, WRITTEN_USD
    ),
    "OpenAI: reasoning inside the completion": openai(
        PLAIN | {"completion_tokens_details": {"reasoning_tokens": 150}}, THOUGHT_UNITS, PLAIN_USD
    ),
    "OpenAI: details are null": openai(
        PLAIN | {"prompt_tokens_details": None, "completion_tokens_details": None}, PLAIN_UNITS, PLAIN_USD
    ),
    "OpenAI: no total": openai({"prompt_tokens": 1000, "completion_tokens": 200}, PLAIN_UNITS, PLAIN_USD),
    "DeepSeek: hits and misses beside the prompt": openai(
        PLAIN | {"prompt_cache_hit_tokens": 600, "prompt_cache_miss_tokens": 400}, CACHED_UNITS, CACHED_USD
    ),
    "DeepSeek: in both places": openai(
        PLAIN | {"prompt_cache_hit_tokens": 600, "prompt_tokens_details": {"cached_tokens": 600}},
        CACHED_UNITS,
        CACHED_USD,
    ),
    "Moonshot: cached beside the prompt": openai(PLAIN | {"cached_tokens": 600}, CACHED_UNITS, CACHED_USD),
    # 9992 x 2 + 128 x 0.5 + 1499 x 8 + 2809 x 8
    "xAI: reasoning outside the completion": openai(
        {
            "prompt_tokens": 10120,
            "completion_tokens": 1499,
            "total_tokens": 14428,
            "prompt_tokens_details": {"cached_tokens": 128},
            "completion_tokens_details": {"reasoning_tokens": 2809},
        },
        {"input_tokens": 9992, "cached_input_tokens": 128, "output_tokens": 1499, "reasoning_tokens": 2809},
        "0.054512",
    ),
    # 20 x 2 + 198 x 8 + 405 x 8
    "Gemini: reasoning in the total only": openai(
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
        {"input_tokens": 20, "output_tokens": 198, "reasoning_tokens": 405},
        "0.004864",
    ),
    "OpenAI: in the chunk that finishes": openai(PLAIN, PLAIN_UNITS, PLAIN_USD, PLAIN, None),
    "vLLM: in every chunk, counting on": openai(
        PLAIN,
        PLAIN_UNITS,
        PLAIN_USD,
        {"prompt_tokens": 1000, "completion_tokens": 1},
        {"prompt_tokens": 1000, "completion_tokens": 90},
        PLAIN,
    ),
    "OpenAI: twice, the same": openai(PLAIN, PLAIN_UNITS, PLAIN_USD, PLAIN, PLAIN),
    "OpenAI: zeros after it": openai(
        PLAIN, PLAIN_UNITS, PLAIN_USD, PLAIN, {"prompt_tokens": 0, "completion_tokens": 0}
    ),
    "OpenAI: more cached than there is": openai(
        PLAIN | {"prompt_tokens_details": {"cached_tokens": 5000}},
        {"cached_input_tokens": 1000, "output_tokens": 200},
        "0.0021",  # 1000 x 0.5 + 200 x 8
    ),
    "OpenAI: counts that are none": openai(
        {"prompt_tokens": "many", "completion_tokens": -5, "total_tokens": 1e9}, {"output_tokens": 0}, "0"
    ),
    "OpenAI: nothing told": openai(None, None, None),
    "Anthropic: plain": anthropic({"input_tokens": 1000, "output_tokens": 200}, PLAIN_UNITS, PLAIN_USD),
    "Anthropic: read from the cache beside the input": anthropic(
        {**BESIDE, "input_tokens": 400, "cache_creation_input_tokens": 0}, CACHED_UNITS, CACHED_USD
    ),
    "Anthropic: read and written beside the input": anthropic(
        {**BESIDE, "cache_creation_input_tokens": 100}, WRITTEN_UNITS, WRITTEN_USD
    ),
    "Anthropic: the whole and its parts by time": anthropic(
        {**BESIDE, "cache_creation_input_tokens": 100, "cache_creation": BOTH_KEPT}, WRITTEN_UNITS, WRITTEN_USD
    ),
    "Anthropic: the parts by time only": anthropic({**BESIDE, "cache_creation": BOTH_KEPT}, WRITTEN_UNITS, WRITTEN_USD),
    "Anthropic: thinking inside the output": anthropic(
        {"input_tokens": 1000, "output_tokens": 200, "output_tokens_details": {"thinking_tokens": 150}},
        THOUGHT_UNITS,
        PLAIN_USD,
    ),
    "Anthropic: all of it again at the end": anthropic(
        {**BESIDE, "cache_creation_input_tokens": 100},
        WRITTEN_UNITS,
        WRITTEN_USD,
        {**BESIDE, "cache_creation_input_tokens": 100, "output_tokens": 1},
        {**BESIDE, "cache_creation_input_tokens": 100},
    ),
    "Anthropic: the prompt at the end only": anthropic(
        {"input_tokens": 1000, "output_tokens": 200},
        PLAIN_UNITS,
        PLAIN_USD,
        {"input_tokens": 0, "output_tokens": 0},
        {"input_tokens": 1000, "output_tokens": 200},
    ),
    "Anthropic: the end forgets the prompt": anthropic(
        {"input_tokens": 1000, "output_tokens": 200},
        PLAIN_UNITS,
        PLAIN_USD,
        {"input_tokens": 1000, "output_tokens": 1},
        {"input_tokens": 0, "output_tokens": 200},
    ),
    "Anthropic: null caches": anthropic(
        {
            "input_tokens": 1000,
            "cache_read_input_tokens": None,
            "cache_creation_input_tokens": None,
            "cache_creation": None,
            "output_tokens": 200,
        },
        PLAIN_UNITS,
        PLAIN_USD,
    ),
    "Anthropic: nothing told": anthropic(None, None, None),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    with Server("openai") as first, Server("anthropic") as second:
        yield {"openai": first, "anthropic": second}


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_priced_once(servers: dict[str, Server], name: str, streams: bool) -> None:
    form = FORMS[name]
    usage = asked(form, servers[form.vendor], streams=streams)
    priced = BOOK.priced(version(form.vendor), MODEL, usage)
    if form.units is None:
        assert (usage, priced) == (None, [])
        return
    assert usage is not None
    assert {row.unit.value: row.quantity for row in priced} == form.units
    assert total(priced) == Decimal(str(form.usd))
    counted = usage.prompt_tokens + usage.output_tokens
    assert sum(row.quantity for row in priced) == counted  # the units are disjoint


def version(vendor: str) -> ProfileVersion:
    return ProfileVersion(provider=vendor, model=MODEL)


def asked(form: Form, server: Server, *, streams: bool) -> TokenUsage | None:
    """Through the driver, from a server that sends exactly this."""
    if form.vendor == "openai":
        body = openai_stream(form.chunks) if streams else openai_whole(form.told)
    else:
        body = anthropic_stream(form.chunks) if streams else anthropic_whole(form.told)
    kind = "text/event-stream" if streams else "application/json"
    server.plans = [Plan(body=body.encode(), content_type=kind)]
    return make_provider(form.vendor, ProviderConfig(server.base_url, KEY, 30.0)).complete(REQUEST).usage


def sse(data: dict[str, Any]) -> str:
    event = f"event: {data['type']}\n" if "type" in data else ""
    return f"{event}data: {json.dumps(data)}\n\n"


def openai_whole(told: dict[str, Any] | None) -> str:
    message = {"role": "assistant", "content": "ok"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps(
        {"id": "r", "object": "chat.completion", "created": 1, "model": MODEL, "choices": choices, "usage": told}
    )


def openai_stream(chunks: tuple[dict[str, Any] | None, ...]) -> str:
    """The last chunk has no choices, the others have; the one before it finishes."""
    head = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    sent = sse(head | {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}], "usage": None})
    for at, told in enumerate(chunks):
        left = len(chunks) - at
        finish = "stop" if left == 2 else None
        choices = [] if left == 1 else [{"index": 0, "delta": {}, "finish_reason": finish}]
        sent += sse(head | {"choices": choices, "usage": told})
    return sent + "data: [DONE]\n\n"


def anthropic_whole(told: dict[str, Any] | None) -> str:
    content = [{"type": "text", "text": "ok"}]
    head = {"id": "r", "type": "message", "role": "assistant", "model": MODEL, "content": content}
    return json.dumps(head | {"stop_reason": "end_turn"} | ({"usage": told} if told else {}))


def anthropic_stream(chunks: tuple[dict[str, Any] | None, ...]) -> str:
    start, end = chunks
    message = {"id": "r", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None}
    message |= {"usage": start} if start else {}
    sent = sse({"type": "message_start", "message": message})
    sent += sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    sent += sse({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok"}})
    sent += sse({"type": "content_block_stop", "index": 0})
    sent += sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}} | ({"usage": end} if end else {}))
    return sent + sse({"type": "message_stop"})


LISTED = ("claude-sonnet-4-5", "claude-opus-4-1", "gpt-5.1", "o3", "gemini-2.5-pro", "grok-4", "deepseek-chat")


@pytest.mark.parametrize("prompt", [900, 200_000, 200_001, 900_000])
@pytest.mark.parametrize("model", LISTED)
def test_a_call_of_the_price_list_costs_what_the_list_says_unit_by_unit(model: str, prompt: int) -> None:
    """Long prompts at their own price: the sum of the units is the list's own total for the whole call."""
    usage = TokenUsage(
        input_tokens=prompt // 3,
        cached_input_tokens=prompt // 3,
        cache_write_tokens=prompt - 2 * (prompt // 3),
        output_tokens=700,
        reasoning_tokens=500,
        cache_write_1h_tokens=prompt // 9,
    )
    rows = PriceBook((), NOW).priced(ProfileVersion(provider="openai"), model, usage)
    told = Usage(
        input_tokens=prompt,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        output_tokens=700,
    )
    listed = calc_price(told, model, genai_request_timestamp=NOW).total_price
    cost = total(rows)
    assert cost is not None
    assert abs(cost - listed) <= Decimal("0.000000005")
    assert len(rows) == 5
    assert all(row.unit_price_usd and row.source.startswith("genai-prices ") for row in rows)


@pytest.mark.parametrize("model", [*LISTED, "sonar"])
@pytest.mark.parametrize("window", [8_000, 128_000, 1_000_000])
def test_no_call_costs_more_than_what_is_set_aside_for_it(model: str, window: int) -> None:
    address = "https://api.perplexity.ai" if model == "sonar" else ""  # which asks for something by request
    who = ProfileVersion(provider="openai", base_url=address, context_window_tokens=window)
    book = PriceBook((), NOW)
    most = book.per_token(who, model)
    assert most is not None
    for prompt in (1, window // 2, window):
        for fresh, cached in ((prompt, 0), (0, prompt), (prompt - prompt // 2, 0)):
            usage = TokenUsage(fresh, 333, cached, prompt - fresh - cached, 111)
            cost = total(book.priced(who, model, usage))
            assert cost is not None
            assert cost <= most.of(input_tokens=prompt, output_tokens=333)
    few = book.priced(who, model, TokenUsage(window))
    assert total(few) == pytest.approx(
        most.input_usd * window + most.request_usd, rel=Decimal("0.51")
    )  # and not wildly more


def test_an_address_is_priced_by_its_vendor_and_an_unknown_one_by_the_name_alone() -> None:
    def source(base_url: str, model: str) -> str:
        found = price_list.listed("openai", base_url, model, prompt_tokens=1, at=NOW)
        return found[Unit.INPUT].source.partition(": ")[2] if found else "unknown"

    assert source("", "gpt-5.1") == "openai/gpt-5.1"
    assert source("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5").startswith("openrouter/")
    assert source("http://10.0.0.7:4000/v1", "gpt-5.1") == "openai/gpt-5.1 (by name)"
    assert source("http://10.0.0.7:4000/v1", "our-own-model") == "unknown"


def test_what_answered_is_priced_where_the_name_that_was_asked_for_is_not_known() -> None:
    """A deployment's own name. The other way round the name that was asked for counts, as when it was set aside."""
    book, who, usage = PriceBook(BOOK.own, NOW), version("openai"), TokenUsage(1000, 200)
    assert total(book.priced(who, "our-deployment", usage, answered=MODEL)) == Decimal("0.0036")
    assert total(book.priced(who, MODEL, usage, answered="gpt-5.1")) == Decimal("0.0036")
    assert total(book.priced(who, "our-deployment", usage)) is None
