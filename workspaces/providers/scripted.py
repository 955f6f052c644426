"""Plays a scenario as if it were a model: for demos and tests, exact and without a network.

Stateless: the reply depends on the request alone (its index is the number of assistant messages in it and of those
that its summary stands for), so a resume, a rollback or a recovery meets the same reply, with the same call ids. The
format is in scenario.py; the tools that a scenario calls are run for real by the engine.

The one thing that a request does not tell is how often it was sent before. `fault.times` therefore counts in
this process, by scenario and conversation (hash of its messages): the n-th attempt of the same request in one
process fails until `times` is used up. Another process, or another conversation, counts anew.

Options: `scenario_text` (YAML) or `scenario` (the name of one that is shipped in scenarios/).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from workspaces.domain import rate_headers
from workspaces.domain.context import SUMMARY_HEAD
from workspaces.domain.text import clean_text
from workspaces.providers.base import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    FinishReason,
    ProviderConfig,
    ProviderError,
    RawToolCall,
    TokenUsage,
)
from workspaces.providers.scenario import FAULTS, Case, Fault, Scenario, ScenarioError, read_scenario
from workspaces.wire.driving import CallInterrupted

_CHARS_PER_TOKEN = 4
_TEMPLATE = re.compile(r"\\\{\{|\{\{\s*(?:(last_result|instruction|last_user|index)|result\[\s*(-?\d+)\s*\])\s*\}\}")
_SUMMARY = re.compile(re.escape(SUMMARY_HEAD).replace(re.escape("{replies}"), r"(\d+)"))
_REMEMBERED = 10_000
_attempts: OrderedDict[str, int] = OrderedDict()
_attempts_lock = threading.Lock()


def shipped_scenarios() -> list[str]:
    """Names that `options["scenario"]` may have."""
    folder = resources.files("workspaces.providers") / "scenarios"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_scenario(options: Any) -> Scenario:
    """The scenario that a config's options name. Raises ScenarioError."""
    text, name = options.get("scenario_text"), options.get("scenario")
    if isinstance(text, str) and text.strip():
        return read_scenario(text)
    if not name:
        raise ScenarioError("a scripted provider needs scenario_text or the name of a scenario")
    known = shipped_scenarios()
    if name not in known:
        raise ScenarioError(f"no scenario is called {name!r}; there are {', '.join(known)}")
    source = resources.files("workspaces.providers") / "scenarios" / f"{name}.yaml"
    return read_scenario(source.read_text("utf-8"), name)


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a reply may depend on."""

    index: int
    instruction: str
    last_user: str
    results: tuple[str, ...]  # of the last turn, in order

    @property
    def last_result(self) -> str:
        return self.results[-1] if self.results else ""

    def fits(self, case: Case) -> bool:
        looked_at = {
            "last_result_matches": (self.last_result,),
            "any_result_matches": self.results,
            "message_matches": (self.last_user,),
            "instruction_matches": (self.instruction,),
        }
        return all(any(pattern.search(text) for text in looked_at[key]) for key, pattern in case.when.items())

    def fill(self, text: str, escape: bool = False) -> str:
        def value(match: re.Match[str]) -> str:
            word, number = match[1], match[2]
            if word is None and number is None:
                return "{{"
            found = ""
            if number is not None:
                at = int(number)
                found = self.results[at] if -len(self.results) <= at < len(self.results) else ""
            else:
                found = str(getattr(self, word))
            return json.dumps(found, ensure_ascii=False)[1:-1] if escape else found

        return _TEMPLATE.sub(value, text)

    def fill_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.fill(value)
        if isinstance(value, list):
            return [self.fill_all(item) for item in value]
        if isinstance(value, dict):
            return {key: self.fill_all(item) for key, item in value.items()}
        return value


class ScriptedProvider:
    """Thread-safe. Raises ScenarioError when it is made."""

    name = "scripted"

    def __init__(self, config: ProviderConfig) -> None:
        self._scenario = load_scenario(config.options)
        self._timeout_s = config.timeout_s

    def complete(
        self,
        request: ChatRequest,
        *,
        on_text: Callable[[str], None] | None = None,
        interrupt: threading.Event | None = None,
    ) -> ChatReply:
        clock = _Clock(self._timeout_s, interrupt)
        scene = _scene(request.messages)
        case = self._case(scene) if request.purpose == "step" else self._side(request.purpose, scene)
        fault = case.fault if case.fault and self._fails(case.fault, request, scene.index) else None
        clock.wait(case.delay_s, "")
        if fault is not None and not fault.after_chunks:
            raise _error(fault, case)
        text = clean_text(scene.fill(case.text))
        first_token_s, sent = None, ""
        for at, piece in enumerate(_pieces(text, case.chunks)):
            if at:
                clock.wait(case.chunk_delay_s, sent)
            if fault is not None and at >= fault.after_chunks:
                break
            first_token_s = first_token_s if first_token_s is not None else clock.elapsed()
            sent += piece
            if on_text is not None:
                on_text(piece)
        if fault is not None:
            raise _error(fault, case)
        calls = _calls(case, scene)
        finish: FinishReason = case.finish_reason or ("tool_calls" if calls else "stop")
        return ChatReply(
            text=text,
            tool_calls=calls,
            finish_reason=finish,
            usage=None if case.no_usage else case.usage or _estimate(request, text, calls),
            model=request.model,
            response_id=f"scripted-{scene.index}",
            latency_s=clock.elapsed(),
            first_token_s=first_token_s if first_token_s is not None or not calls else clock.elapsed(),
            rate=rate_headers.read(case.headers),
        )

    def _case(self, scene: _Scene) -> Case:
        replies = self._scenario.replies
        index = scene.index
        if index >= len(replies):
            if self._scenario.after == "error":
                raise _refused(f"the scenario {self._scenario.name} has no reply {index}")
            if self._scenario.after == "finish":
                return Case(text="The scenario is played to its end.", calls=_FINISH.calls)
            index = len(replies) - 1
        for case in replies[index]:
            if scene.fits(case):
                return case
        raise _refused(f"the scenario {self._scenario.name} has no case that fits at replies[{index}]")

    def _side(self, purpose: str, scene: _Scene) -> Case:
        """What is asked beside the steps moves none of them on."""
        cases = self._scenario.side.get(purpose, (Case(text=f"A scripted {purpose}."),))
        for case in cases:
            if scene.fits(case):
                return case
        raise _refused(f"the scenario {self._scenario.name} has no case that fits at side.{purpose}")

    def _fails(self, fault: Fault, request: ChatRequest, index: int) -> bool:
        if fault.times is None:
            return True
        said = repr((self._scenario.digest, request.messages, index))
        key = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
        with _attempts_lock:
            attempt = _attempts.pop(key, 0) + 1
            _attempts[key] = attempt
            while len(_attempts) > _REMEMBERED:
                _attempts.popitem(last=False)
        return attempt <= fault.times


class _Clock:
    def __init__(self, timeout_s: float, interrupt: threading.Event | None) -> None:
        self._started = time.monotonic()
        self._timeout_s = timeout_s
        self._interrupt = interrupt if interrupt is not None else threading.Event()

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def wait(self, seconds: float, partial: str) -> None:
        """Raises CallInterrupted, or a timeout when the call's whole time is used up."""
        left = self._timeout_s - self.elapsed()
        if self._interrupt.wait(max(0.0, min(seconds, left))):
            raise CallInterrupted(partial)
        if seconds > left:
            message = f"scripted: no complete reply within {self._timeout_s:g} s"
            raise ProviderError(message, kind="timeout", permanent=False)


def _scene(messages: tuple[ChatMessage, ...]) -> _Scene:
    users = [message.content for message in messages if message.role == "user"]
    last = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return _Scene(
        index=sum(message.role == "assistant" for message in messages) + _summarised(users),
        instruction=users[0] if users else "",
        last_user=users[-1] if users else "",
        results=tuple(message.content for message in messages[last + 1 :] if message.role == "tool"),
    )


def _summarised(users: list[str]) -> int:
    """How many replies a summary stands for: the request says so."""
    found = [_SUMMARY.match(text) for text in users]
    return max((int(match[1]) for match in found if match), default=0)


def _calls(case: Case, scene: _Scene) -> tuple[RawToolCall, ...]:
    calls = []
    for at, call in enumerate(case.calls):
        if call.arguments is None:
            arguments = scene.fill(call.arguments_text, escape=True)
        else:
            arguments = json.dumps(scene.fill_all(dict(call.arguments)), ensure_ascii=False, default=str)
        calls.append(RawToolCall(f"call_{scene.index}_{at}", call.name, clean_text(arguments)))
    return tuple(calls)


def _pieces(text: str, chunks: int) -> list[str]:
    size = max(1, -(-len(text) // chunks))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _estimate(request: ChatRequest, text: str, calls: tuple[RawToolCall, ...]) -> TokenUsage:
    sent = sum(
        len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
        for message in request.messages
    )
    written = len(text) + sum(len(call.name) + len(call.arguments) for call in calls)
    return TokenUsage(input_tokens=max(1, sent // _CHARS_PER_TOKEN), output_tokens=max(1, written // _CHARS_PER_TOKEN))


def _error(fault: Fault, case: Case) -> ProviderError:
    rate = rate_headers.read(case.headers)
    permanent, cause, status = FAULTS[fault.kind]
    return ProviderError(
        f"scripted: {cause} (a fault of the scenario)",
        kind=fault.kind,
        permanent=permanent,
        retry_after_s=fault.retry_after_s if fault.retry_after_s is not None or not rate else rate.retry_after_s,
        status=status,
        rate=rate,
    )


def _refused(message: str) -> ProviderError:
    return ProviderError(f"scripted: {message}", kind="bad_request", permanent=True)


_FINISH = read_scenario(
    'replies: [{calls: [{name: finish, arguments: {summary: "The scenario is played to its end."}}]}]'
).replies[0][0]
