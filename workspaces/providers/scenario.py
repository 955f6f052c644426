"""The scenario format of the scripted provider: what it says, and the reading of it. Plays nothing.

A scenario is a YAML mapping:

    name: hello                # optional
    after: finish              # when the replies run out: finish (default) | error | repeat_last
    chunk_delay_s: 0.05        # optional defaults for every reply: chunk_delay_s, chunks, delay_s
    side:                      # optional: replies to what is asked beside the steps, by purpose (summary,
      summary: {text: "…"}     # claim_check): a reply as below, or cases. Else it is answered in a few words
    replies:                   # the n-th reply answers a request with n assistant messages (0, 1, 2, …)
      - text: "I read {{instruction}}."
        think: "…"             # a note for readers of the file; never sent
        calls:
          - name: write_file
            arguments: {path: a.txt, content: "{{last_result}}"}
          - name: shell
            arguments_text: '{"command": '     # sent as it is, also when it is no JSON
        delay_s: 2             # before the first token; an order interrupts it
        chunks: 5              # the text comes in so many pieces (default 1) …
        chunk_delay_s: 0.1     # … with this between them
        finish_reason: length  # default: tool_calls with calls, else stop
        usage: {input: 900, output: 30, cached_input: 0, cache_write: 0, reasoning: 0}   # or: none
        headers: {x-ratelimit-limit-requests: 60}   # what the answer, or its failure, says of limits
        repeat: 3              # the same entry answers so many requests in a row
        fault:                 # the request fails instead
          kind: rate_limit     # rate_limit overloaded server timeout connection auth bad_request
                               # not_found context_length malformed
          retry_after_s: 2
          times: 1             # so often, then it answers; without `times`, always
          after_chunks: 1      # fail after so many pieces of text (default: before any)
      - cases:                 # the first case whose `when` holds; one without `when` is the default
          - when:
              last_result_matches: "\\bFAILED\\b"   # regex, searched in the newest tool result
              any_result_matches: "…"              # … in any result of the last turn
              message_matches: "…"                 # … in the newest user message
              instruction_matches: "…"             # … in the first user message
            calls: […]
          - text: "all is well"

Templates in `text`, in argument strings (at any depth) and in `arguments_text`: `{{last_result}}`;
`{{result[0]}}` (results of the last turn, in order; negative counts from the end); `{{instruction}}` (first user
message); `{{last_user}}` (newest user message); `{{index}}` (number of assistant messages). In `arguments_text`
values are put in as the inside of a JSON string. `\\{{` is a plain `{{`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import yaml

from workspaces.domain.states import ModelCallPurpose
from workspaces.providers.base import FinishReason, TokenUsage

After = Literal["finish", "error", "repeat_last"]
# kind: (permanent, what it says, HTTP status)
FAULTS: dict[str, tuple[bool, str, int | None]] = {
    "rate_limit": (False, "the rate limit is reached", 429),
    "overloaded": (False, "the provider is overloaded", 529),
    "server": (False, "the provider failed", 500),
    "timeout": (False, "no complete reply in time", None),
    "connection": (False, "the connection broke off before the reply was complete", None),
    "malformed": (False, "the reply cannot be read", None),
    "auth": (True, "the key was refused", 401),
    "not_found": (True, "no such model or path", 404),
    "bad_request": (True, "the request was refused", 400),
    "context_length": (True, "the request is larger than the model's context", 400),
}
_USAGE = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached_input": "cached_input_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}
_WHEN = ("last_result_matches", "any_result_matches", "message_matches", "instruction_matches")
_TIMING = ("delay_s", "chunks", "chunk_delay_s")
_REPLY = {"text", "think", "calls", "usage", "finish_reason", "fault", "headers", "when", *_TIMING}
_PURPOSES = [purpose.value for purpose in ModelCallPurpose if purpose is not ModelCallPurpose.STEP]
MAX_BYTES = 1_000_000
MAX_REPLIES = 100_000


class ScenarioError(ValueError):
    """The scenario is not one; says where (`replies[2].calls[0].name`, or line and column) and why."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    retry_after_s: float | None = None
    times: int | None = None
    after_chunks: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    name: str
    arguments: Mapping[str, Any] | None  # None: `arguments_text` counts
    arguments_text: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    delay_s: float = 0.0
    chunks: int = 1
    chunk_delay_s: float = 0.0
    usage: TokenUsage | None = None
    no_usage: bool = False
    finish_reason: FinishReason | None = None
    fault: Fault | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    when: Mapping[str, re.Pattern[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """`replies`: for each index the cases to choose from, `repeat` already unrolled."""

    name: str
    replies: tuple[tuple[Case, ...], ...]
    after: After
    digest: str  # of the source
    side: Mapping[str, tuple[Case, ...]] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them unfold to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) are not allowed; use repeat", self.peek_event().start_mark
            )
        return super().compose_node(parent, index)


@lru_cache(maxsize=64)
def read_scenario(source: str, name: str = "scenario") -> Scenario:
    """Raises ScenarioError. Reading the same text again costs nothing."""
    if len(source) > MAX_BYTES:
        raise ScenarioError(f"{name}: larger than {MAX_BYTES} characters")
    try:
        value = yaml.load(source, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ScenarioError(f"{name}: {place}{error.problem or 'not YAML'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ScenarioError(f"{name}: not YAML: {error}") from None
    top = _mapping(value, name, {"name", "description", "after", "replies", "side", *_TIMING})
    after = top.get("after", "finish")
    if after not in get_args(After):
        raise ScenarioError(f"{name}: after: {after!r} is none of {', '.join(get_args(After))}")
    entries = top.get("replies")
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f"{name}: replies: must be a list with at least one reply")
    defaults = {key: top[key] for key in _TIMING if key in top}
    replies: list[tuple[Case, ...]] = []
    for at, entry in enumerate(entries):
        path = f"{name}: replies[{at}]"
        body = _mapping(entry, path, _REPLY - {"when"} | {"cases", "repeat"})
        repeat = _whole(body.get("repeat", 1), f"{path}.repeat", least=1)
        if len(replies) + repeat > MAX_REPLIES:
            raise ScenarioError(f"{path}.repeat: more than {MAX_REPLIES} replies in all")
        replies += [_cases(body, path, defaults)] * repeat
    side = {
        purpose: _cases(
            _mapping(entry, f"{name}: side.{purpose}", _REPLY - {"when"} | {"cases"}),
            f"{name}: side.{purpose}",
            defaults,
        )
        for purpose, entry in _mapping(top.get("side") or {}, f"{name}: side", set(_PURPOSES)).items()
    }
    return Scenario(
        str(top.get("name") or name),
        tuple(replies),
        after,
        hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest(),
        side,
    )


def _cases(body: dict[str, Any], path: str, defaults: Mapping[str, Any]) -> tuple[Case, ...]:
    shared = {key: value for key, value in body.items() if key not in ("cases", "repeat")}
    if "cases" not in body:
        return (_case({**defaults, **shared}, path),)
    entries = body["cases"]
    if not isinstance(entries, list) or not entries:
        raise ScenarioError(f"{path}.cases: must be a list with at least one case")
    extra = set(shared) - {"think", *_TIMING}
    if extra:
        raise ScenarioError(f"{path}: {', '.join(sorted(extra))} beside cases; it belongs into a case")
    cases = []
    for at, entry in enumerate(entries):
        own = _mapping(entry, f"{path}.cases[{at}]", _REPLY)
        cases.append(_case({**defaults, **shared, **own}, f"{path}.cases[{at}]"))
        if not cases[-1].when and at < len(entries) - 1:
            raise ScenarioError(f"{path}.cases[{at}]: without `when` only the last case can be")
    return tuple(cases)


def _case(body: Mapping[str, Any], path: str) -> Case:
    calls = body.get("calls") or []
    if not isinstance(calls, list):
        raise ScenarioError(f"{path}.calls: must be a list")
    finish = body.get("finish_reason")
    if finish is not None and finish not in get_args(FinishReason):
        raise ScenarioError(f"{path}.finish_reason: {finish!r} is none of {', '.join(get_args(FinishReason))}")
    usage = body.get("usage")
    return Case(
        text=_text(body.get("text", ""), f"{path}.text"),
        calls=tuple(_call(call, f"{path}.calls[{at}]") for at, call in enumerate(calls)),
        delay_s=_seconds(body.get("delay_s", 0), f"{path}.delay_s"),
        chunks=_whole(body.get("chunks", 1), f"{path}.chunks", least=1),
        chunk_delay_s=_seconds(body.get("chunk_delay_s", 0), f"{path}.chunk_delay_s"),
        usage=None if usage in (None, "none") else _usage(usage, f"{path}.usage"),
        no_usage=usage == "none",
        finish_reason=finish,
        fault=None if body.get("fault") is None else _fault(body["fault"], f"{path}.fault"),
        headers={
            key.lower(): str(told) for key, told in _mapping(body.get("headers") or {}, f"{path}.headers", None).items()
        },
        when=_when(body.get("when"), f"{path}.when"),
    )


def _call(value: object, path: str) -> ScriptedCall:
    call = _mapping(value, path, {"name", "arguments", "arguments_text"})
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise ScenarioError(f"{path}.name: must be a tool's name")
    if "arguments_text" in call:
        if "arguments" in call:
            raise ScenarioError(f"{path}: arguments and arguments_text exclude each other")
        return ScriptedCall(name, None, _text(call["arguments_text"], f"{path}.arguments_text"))
    arguments = call.get("arguments")
    return ScriptedCall(name, _mapping({} if arguments is None else arguments, f"{path}.arguments", None))


def _fault(value: object, path: str) -> Fault:
    fault = _mapping(value, path, {"kind", "retry_after_s", "times", "after_chunks"})
    kind = fault.get("kind")
    if kind not in FAULTS:
        raise ScenarioError(f"{path}.kind: {kind!r} is none of {', '.join(FAULTS)}")
    wait, times = fault.get("retry_after_s"), fault.get("times")
    return Fault(
        kind=kind,
        retry_after_s=None if wait is None else _seconds(wait, f"{path}.retry_after_s"),
        times=None if times is None else _whole(times, f"{path}.times", least=1),
        after_chunks=_whole(fault.get("after_chunks", 0), f"{path}.after_chunks", least=0),
    )


def _when(value: object, path: str) -> dict[str, re.Pattern[str]]:
    if value is None:
        return {}
    tests = _mapping(value, path, set(_WHEN))
    if not tests:
        raise ScenarioError(f"{path}: must hold at least one of {', '.join(_WHEN)}")
    patterns = {}
    for key, pattern in tests.items():
        try:
            patterns[key] = re.compile(_text(pattern, f"{path}.{key}"))
        except re.error as error:
            raise ScenarioError(f"{path}.{key}: not a regular expression: {error}") from None
    return patterns


def _usage(value: object, path: str) -> TokenUsage:
    told = _mapping(value, path, set(_USAGE))
    return TokenUsage(**{_USAGE[key]: _whole(told[key], f"{path}.{key}", least=0) for key in told})


def _mapping(value: object, path: str, allowed: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ScenarioError(f"{path}: must be a mapping")
    unknown = set(value) - allowed if allowed is not None else set()
    if unknown:
        raise ScenarioError(
            f"{path}: unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(allowed or ()))}"
        )
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise ScenarioError(f"{path}: must be text")
    return value


def _seconds(value: object, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise ScenarioError(f"{path}: must be seconds, 0 to 86400")
    return float(value)


def _whole(value: object, path: str, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ScenarioError(f"{path}: must be a whole number, at least {least}")
    return value
