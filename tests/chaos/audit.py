"""After the storm: what the product says of itself (`manage.py verify --deep`), and what the world outside says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentdesk import environment
from tests.chaos.bank import Bank
from tests.chaos.product import Product
from tests.chaos.work import Plan
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Event, LedgerEntry, ModelCall, Task, ToolCall
from workspaces.sandboxes.base import SandboxError


def verified(product: Product) -> tuple[dict[str, int], list[str], str]:
    """How many rows of each rule are broken, what breaks them, and why it could not be told, if so."""
    done = subprocess.run(
        [sys.executable, "manage.py", "verify", "--deep", "--json"],
        cwd=environment.REPO,
        env={name: value for name, value in product.environment.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    try:
        rules = json.loads(done.stdout)["rules"]
    except ValueError:
        return {}, [], f"verify: {done.stderr[-500:]}"
    rows = [f"{rule['name']}: task {row['task_id']}: {row['what']}" for rule in rules for row in rule["rows"]]
    return {rule["name"]: rule["broken"] for rule in rules}, rows, ""


def outside(bank: Bank, plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Every way in which the world outside does not agree with what was to be done."""
    keys = Counter(entry.key for entry in bank.entries if entry.key)
    tokens = Counter(entry.token for entry in bank.entries)
    wanted = [token for plan in plans.values() for _, token in plan.tokens]
    begun: dict[str, float] = {}  # by token; the earliest stays
    token_of = dict(ToolCall.objects.exclude(effect_key="").values_list("pk", "arguments__token"))
    for call, at in Event.objects.filter(kind="call.started").order_by("-at").values_list("data__tool_call", "at"):
        if call in token_of:
            begun[token_of[call]] = at.timestamp()
    completed = set(LedgerEntry.objects.filter(state="completed").values_list("tool_call__arguments__token", flat=True))
    return {
        "keys used twice": [key for key, count in keys.items() if count > 1],
        "effects done twice": [f"{token}: {count}" for token, count in tokens.items() if count > 1],
        "effects missing": [token for token in wanted if not tokens[token]],
        "effects of nobody": [token for token in tokens if token not in set(wanted)],
        "effects before their intent": [
            entry.token for entry in bank.entries if entry.token not in begun or begun[entry.token] > entry.at
        ],
        "effects that the ledger does not know": sorted(set(tokens) - completed),
        "effects that only the ledger knows": sorted(completed - set(tokens)),
    }


def work_done(plans: Mapping[str, Plan]) -> dict[str, list[str]]:
    """Tasks that did not come to their end, and files that are not what they were to be."""
    unfinished, files = [], []
    for task in Task.objects.select_related("workspace").order_by("pk"):
        plan = plans[task.instruction]
        if task.status != "succeeded":
            unfinished.append(
                f"task {task.pk} ({plan.name}) is {task.status} {task.waiting_for}: {task.waiting_reason}"
            )
        for path, content in plan.files.items():
            try:
                found = sandbox_for(task.workspace).read(path).decode()
            except SandboxError as error:
                found = f"<{error}>"
            if found != content:
                files.append(f"task {task.pk}: {path} is {found[-120:]!r}, not {content[-120:]!r}")
    return {"tasks not at their end": unfinished, "files not as they should be": files}


def figures() -> dict[str, Any]:
    def events(kind: str) -> int:
        return Event.objects.filter(kind=kind).count()

    return {
        "tasks": Task.objects.filter(forked_from=None).count(),
        "forks": Task.objects.exclude(forked_from=None).count(),
        "rollbacks": events("task.rolled_back"),
        "pauses": events("task.paused"),
        "steps": events("step.started"),
        "events": Event.objects.count(),
        "take-overs": events("task.taken_over"),
        "calls interrupted": events("call.unknown"),
        "tool calls run": ToolCall.objects.filter(attempt__gt=0).count(),
        "tool calls run again": ToolCall.objects.filter(attempt__gt=1).count(),
        "replies asked again": ModelCall.objects.filter(status="dropped").count(),
        "effects replayed": ToolCall.objects.filter(verdict="replay").count(),
        "effects completed": LedgerEntry.objects.filter(state="completed").count(),
    }
