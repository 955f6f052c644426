"""Reads the labelled traces: compact YAML written by hand, exports of played tasks, transcripts of a real model.

The compact form of a call is [tool, arguments, result, class, effect, verdict]; arguments are an object, or the values
of the tool's usual names; a result that begins with "!" is an error. <n> is the number of the round, <m> the next, <r>
one that falls, <w> a word that differs each time. Labels: `expect` names each kind that should be found and the latest
step by which; `also` names kinds that may be found as well; before `onset` nothing is wrong yet.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from workspaces.domain.effects import Effect, arguments_hash, canonical_json
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.storms import Happening
from workspaces.domain.trail import SeenCall, Trail, Turn

HERE = Path(__file__).parent
TRANSCRIPTS = HERE.parent / "data" / "model_failures"
WORDS = [
    "amber",
    "basalt",
    "cedar",
    "dune",
    "ember",
    "fjord",
    "garnet",
    "heron",
    "iris",
    "jasper",
    "kelp",
    "lichen",
    "maple",
    "nettle",
    "opal",
    "pebble",
    "quartz",
    "raven",
    "slate",
    "tundra",
    "umber",
    "violet",
    "willow",
    "xenon",
    "yarrow",
    "zephyr",
    "acorn",
    "birch",
    "clover",
    "damson",
    "elder",
    "fern",
    "gorse",
    "hazel",
    "indigo",
]
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "shell": ("command",),
    "run_shell": ("cmd",),
    "read_file": ("path",),
    "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new"),
    "list_files": ("path",),
    "search_files": ("pattern",),
    "web_search": ("query",),
    "http_request": ("method", "url"),
    "browser_click": ("selector",),
    "browser_read": ("selector",),
    "note": ("section", "text"),
    "wait": ("seconds",),
    "ask_operator": ("question",),
    "finish": ("summary",),
}
_READ_FROM_TEXT = re.compile(r"\{.*\}", re.DOTALL)
EFFECTS = dict.fromkeys(("shell", "run_shell", "write_file", "edit_file"), Effect.WORKSPACE)


@dataclass(frozen=True, eq=False)
class Trace:
    """One labelled trace. `expect`: kind to the latest step. `any_of`: one of the kinds is enough."""

    family: str
    name: str
    origin: str
    trail: Trail
    expect: dict[str, int] = field(default_factory=dict)
    also: frozenset[str] = frozenset()
    any_of: bool = False
    onset: int = 1
    polling: bool = False
    held_out: bool = False
    happenings: tuple[Happening, ...] = ()

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


@lru_cache(maxsize=1)
def corpus() -> tuple[Trace, ...]:
    return (*hand_written("hand"), *hand_written("held_out"), *played(), *transcripts())


def hand_written(folder: str) -> Iterator[Trace]:
    for path in sorted((HERE / folder).glob("*.yaml")):
        family = yaml.safe_load(path.read_text())
        for entry in family["traces"]:
            yield Trace(
                trail=trail_of(entry),
                happenings=tuple(_happenings(entry.get("happenings", []))),
                **_labels(entry, family["family"], family.get("polling", False), folder == "held_out"),
            )


def _labels(entry: dict[str, Any], family: str, polling: bool, held_out: bool) -> dict[str, Any]:
    return {
        "family": entry.get("family", family),
        "name": entry["name"],
        "origin": entry["origin"],
        "expect": entry.get("expect", {}),
        "also": frozenset(entry.get("also", ())),
        "any_of": entry.get("any_of", False),
        "onset": entry.get("onset", 1),
        "polling": entry.get("polling", polling),
        "held_out": entry.get("held_out", held_out),
    }


def trail_of(entry: dict[str, Any]) -> Trail:
    turns: list[Turn] = []
    for form in unrolled(entry.get("turns", [])):
        turns.append(_turn(form, len(turns) + 1, turns[-1].disk if turns else "d0"))
    return Trail(tuple(turns), entry.get("instruction", "Do the work."), entry.get("exit_condition", ""))


def unrolled(forms: list[Any]) -> Iterator[Any]:
    for form in forms:
        if isinstance(form, dict) and "repeat" in form:
            for index in range(form["repeat"]):
                yield from (filled(inner, index, form["repeat"]) for inner in form["turns"])
        else:
            yield form


def filled(form: Any, index: int, count: int) -> Any:
    if isinstance(form, str):
        word = WORDS[index % len(WORDS)] + ("" if index < len(WORDS) else f"{index // len(WORDS)}")
        text = form.replace("<n>", str(index + 1)).replace("<m>", str(index + 2))
        return text.replace("<r>", str(count - index)).replace("<w>", word)
    if isinstance(form, list):
        return [filled(item, index, count) for item in form]
    if isinstance(form, dict):
        return {key: filled(value, index, count) for key, value in form.items()}
    return form


def _turn(form: Any, step: int, disk: str) -> Turn:
    entry = {"calls": [form]} if isinstance(form, list) else form
    calls = tuple(_call(call, step, place) for place, call in enumerate(entry.get("calls", ()), 1))
    if any(call.effect is not None and call.effect.touches_disk for call in calls):
        disk = f"d{step}"  # a new name after each call that may write, as the engine has it, changed or not
    return Turn(
        step=step,
        seq=step * 10,
        text=entry.get("text", ""),
        finish_reason=entry.get("finish", "tool_calls" if calls else "stop"),
        calls=calls,
        disk=disk,
        notes=sum(call.name == "note" for call in calls),
        operator_spoke=entry.get("operator", False),
        provider_errors=tuple(entry.get("provider_errors", ())),
    )


def _call(form: list[Any], step: int, place: int) -> SeenCall:
    name, given, result, *rest = [*form, *[None] * (6 - len(form))]
    result_class, effect, verdict = rest
    if not isinstance(given, dict):
        values = given if isinstance(given, list) else [given]
        given = dict(zip(ARGUMENTS[name], values, strict=True))
    if isinstance(result, str) and result.startswith("!"):
        result, result_class = result[1:], result_class or "error"
    if effect is None:
        reads = name != "http_request" or given["method"] == "GET"
        effect = EFFECTS.get(name, Effect.NONE if reads else Effect.EXTERNAL)
    return SeenCall(
        seq=step * 10 + place,
        step=step,
        tool_call=step * 100 + place,
        name=name,
        arguments=canonical_json(given),
        call_hash=arguments_hash(name, given),
        verdict=Verdict(verdict or "allow"),
        effect=Effect(effect),
        result_class=ResultClass(result_class or "ok"),
        result=str(result),
        result_hash=hashlib.sha256(str(result).encode()).hexdigest(),
    )


def _happenings(groups: list[dict[str, Any]]) -> Iterator[Happening]:
    seq = 0
    for group in groups:
        for index in range(group["count"]):
            seq += 1
            yield Happening(index * group["every_s"], group["kind"], seq, 1, group["source"])


def played() -> Iterator[Trace]:
    """Tasks that the engine has played (generate.py), with the labels of their scenarios."""
    path = HERE / "played.jsonl"
    if not path.exists():
        return
    labels = {entry["name"]: entry for entry in yaml.safe_load((HERE / "scenarios.yaml").read_text())["traces"]}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        entry = labels[row["name"]]
        yield Trace(
            trail=trail_from_json(row["trail"]),
            **_labels(entry | {"origin": f"played by the engine: {entry['origin']}"}, "", False, False),
        )


def trail_from_json(data: dict[str, Any]) -> Trail:
    return Trail(
        tuple(
            Turn(
                **turn
                | {
                    "provider_errors": tuple(turn["provider_errors"]),
                    "calls": tuple(
                        SeenCall(
                            **call
                            | {
                                "verdict": Verdict(call["verdict"]),
                                "effect": Effect(call["effect"]) if call["effect"] else None,
                                "result_class": ResultClass(call["result_class"]),
                            }
                        )
                        for call in turn["calls"]
                    ),
                }
            )
            for turn in data["turns"]
        ),
        data["instruction"],
        data["exit_condition"],
    )


# By hand, from reading them: what each transcript of the measured model is.
_STUCK = {"expect": {"loop": 5, "paralysis": 5}, "any_of": True}
TRANSCRIPT_LABELS: dict[str, dict[str, Any]] = {
    "qwen1.5b-fence_native_required_t0.7_fix_1": {"expect": {"loop": 7}},  # two calls in turn, four times
    "qwen1.5b_gbnf_t0.7_hello_4": {"expect": {"loop": 5}},  # the same call six times
    "qwen1.5b_native_lenient_t0.7_hello_1": _STUCK,  # words that only look like an end
    "qwen1.5b_native_t0.0_hello_0": _STUCK,
    "qwen1.5b_native_t0.7_hello_8": _STUCK,
    "qwen1.5b_native_t0.7_hello_5": {"expect": {"paralysis": 4}, "also": ["loop"]},  # calls that nobody could read
    "qwen1.5b_native_required_t0.0_hello_0": {"also": ["loop", "paralysis"]},  # every reply cut: truncation's
}


def transcripts() -> Iterator[Trace]:
    """Ten measured transcripts of a small model (tests/data/model_failures), replies and results as they were."""
    for path in sorted(TRANSCRIPTS.glob("*.json")):
        labels = TRANSCRIPT_LABELS.get(path.stem, {})
        data = json.loads(path.read_text())
        entry = labels | {"name": path.stem, "origin": "measured with a small local model"}
        yield Trace(trail=_of_transcript(data), **_labels(entry, "transcripts of a small model", False, False))


def _of_transcript(data: dict[str, Any]) -> Trail:
    results = iter(data["results"])
    forms = []
    for reply in data["replies"]:
        if "http_error" in reply:
            continue
        asked = [(call["name"], call["arguments"]) for call in reply["tool_calls"]]
        if not asked and len(data["results"]) > len(forms) and (written := _READ_FROM_TEXT.search(reply["content"])):
            call = json.loads(written.group())
            asked = [(call.get("tool") or call["name"], json.dumps(call.get("args") or call["arguments"]))]
        calls = []
        for name, arguments in asked:
            result = str(next(results, "done"))
            try:
                given = json.loads(arguments)
            except ValueError:
                calls.append([name, {"text": arguments}, result, "error", None, "correct"])
            else:
                failed = result.startswith(("error", "exit 1"))
                calls.append([name, given, result, "error" if failed else "ok"])
        forms.append({"text": reply["content"], "finish": reply["finish_reason"], "calls": calls})
    return trail_of({"turns": forms})
