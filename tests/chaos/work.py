"""The scripted tasks: each writes files, appends to a log, streams, and acts on the bank. Known beforehand: the end."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.bank import POST

TOKEN = {
    "type": "object",
    "properties": {"token": {"type": "string"}},
    "required": ["token"],
    "additionalProperties": False,
}


def _declared(name: str, effect: str, description: str, key: str) -> dict[str, Any]:
    return {
        "name": name,
        "effect": effect,
        "description": description,
        "parameters": TOKEN,
        "command": f"{POST} {name} {key}",
        "timeout_s": 90,
    }


DECLARED = [
    _declared("charge", "external", "Charge a customer; the bank is told the key.", "key"),
    _declared("ring", "external", "Ring a bell. The bell knows no keys.", "plain"),
    _declared("send", "irreversible", "Send what cannot be called back.", "key"),
]


@dataclass(slots=True)
class Plan:
    """What a task will do, and what has to be there when it has ended."""

    name: str
    scenario: str = ""
    tokens: list[tuple[str, str]] = field(default_factory=list)  # (what, token): each exactly once
    files: dict[str, str] = field(default_factory=dict)


def plan(rng: random.Random, name: str) -> Plan:
    """Six to eight steps: three effects outside, the rest files, one long reply."""
    made = Plan(name)
    effects = ["charge", "ring", "send"]
    rng.shuffle(effects)
    steps = rng.randint(5, 7)
    at = sorted(rng.sample(range(1, steps), 3))
    lines: list[str] = []
    replies: list[dict[str, Any]] = []
    for step in range(steps):
        calls = [_file_call(rng, made, lines, step)]
        if step in at:
            what = effects[at.index(step)]
            token = f"{name}-{what}"
            made.tokens.append((what, token))
            calls.insert(rng.randint(0, 1), {"name": what, "arguments": {"token": token}})
        replies.append(
            {
                "text": f"Step {step} of {name}: " + "so it goes, " * 8,
                "chunks": 8,
                "chunk_delay_s": round(rng.uniform(0.01, 0.12), 3),
                "calls": calls,
            }
        )
    replies.append({"calls": [{"name": "finish", "arguments": {"summary": f"{name} is done"}}]})
    made.files["log"] = "".join(f"{line}\n" for line in lines)
    made.scenario = json.dumps({"replies": replies})
    return made


def _file_call(rng: random.Random, made: Plan, lines: list[str], step: int) -> dict[str, Any]:
    kind = rng.choice(["write", "append", "append", "slow"])
    if kind == "write":
        path, content = f"file-{step}.txt", f"{made.name} {step}\n" * rng.randint(1, 50)
        made.files[path] = content
        return {"name": "write_file", "arguments": {"path": path, "content": content}}
    lines.append(f"step {step}")
    pause = f"sleep {rng.uniform(0.5, 2):.2f}; " if kind == "slow" else ""
    return {"name": "shell", "arguments": {"command": f"{pause}echo step {step} >> log"}}
