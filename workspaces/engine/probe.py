"""Asks a provider one tiny question, to tell a wrong key, address or model before a task depends on it.

Stores nothing and raises nothing: whatever goes wrong is the answer. A probe costs a few tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import InvalidToken

from workspaces.models import ProfileVersion
from workspaces.providers import make_provider
from workspaces.providers.base import ChatMessage, ChatRequest, ProviderConfig, ProviderError
from workspaces.providers.scripted import ScenarioError, load_scenario, shipped_scenarios
from workspaces.wire.driving import CallInterrupted

LIMIT_S = 10.0
MAX_OUTPUT_TOKENS = 16

WORDS = {
    "auth": "The key was refused.",
    "not_found": "The address answers, but it knows no such model or path.",
    "bad_request": "The address answers, but it refused the request.",
    "rate_limit": "The address and key are right; the provider's rate limit is reached at the moment.",
    "overloaded": "The address answers, but the provider is overloaded at the moment.",
    "server": "The address answers, but the provider failed.",
    "timeout": f"No answer within {LIMIT_S:.0f} s.",
    "connection": "The address cannot be reached.",
    "malformed": "The address answers, but not as this kind of provider does.",
}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`words` say what was found; `detail` is the provider's own message. Neither holds the key.

    `may_pass`: the provider could not tell just now; asked later it may work.
    """

    works: bool
    words: str
    detail: str = ""
    latency_s: float = 0.0
    may_pass: bool = False


def probe(provider: str, *, base_url: str, api_key: str, model: str, options: Mapping[str, Any]) -> ProbeResult:
    """Takes at most about LIMIT_S."""
    if provider == "scripted":
        return _probe_scenario(options)
    interrupt = threading.Event()
    timer = threading.Timer(LIMIT_S, interrupt.set)
    timer.daemon = True
    started = time.monotonic()
    timer.start()
    try:
        config = ProviderConfig(base_url=base_url, api_key=api_key, timeout_s=LIMIT_S, options=options)
        reply = make_provider(provider, config).complete(
            ChatRequest(
                model=model,
                messages=(ChatMessage("user", "Reply with the word ok."),),
                max_output_tokens=MAX_OUTPUT_TOKENS,
            ),
            interrupt=interrupt,
        )
    except ProviderError as error:
        return ProbeResult(
            error.kind == "rate_limit",
            WORDS.get(error.kind, "The provider refused."),
            str(error),
            time.monotonic() - started,
            may_pass=not error.permanent,
        )
    except CallInterrupted:
        return ProbeResult(False, WORDS["timeout"], latency_s=time.monotonic() - started, may_pass=True)
    except ValueError as error:
        return ProbeResult(False, "The settings cannot be used.", str(error))
    finally:
        timer.cancel()
    took = time.monotonic() - started
    return ProbeResult(True, f"It works: {reply.model or model} answered.", latency_s=took)


def probe_model(version: ProfileVersion, model: str) -> ProbeResult:
    """Whether another model answers at a version's address, with its key."""
    try:
        key, options = version.key.open() if version.key else "", version.opened_options()
    except InvalidToken:
        return ProbeResult(False, "The stored key cannot be opened: the site's encryption key has changed.")
    return probe(version.provider, base_url=version.base_url, api_key=key, model=model, options=options)


def _probe_scenario(options: Mapping[str, Any]) -> ProbeResult:
    try:
        scenario = load_scenario(options)
    except ScenarioError as error:
        return ProbeResult(False, "The scenario cannot be played.", str(error))
    return ProbeResult(True, f"It works: the scenario {scenario.name} has {len(scenario.replies)} replies.")


def scenarios() -> list[str]:
    """Names of the scenarios that are shipped."""
    return shipped_scenarios()
