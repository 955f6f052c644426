"""`make bench-budget`: 64 first calls begin at once on a budget of 0.50 USD; who lets how much through.

Bar: what ours let through is over the limit by what one call's estimate missed at most, and the limit is used: less
than one call's worth is left. The traffic goes to a small HTTP server that answers with usage and counts for itself.
Beside it, in the same run: a counter written here that is checked before each call, and a LiteLLM proxy (in an
environment of its own, without its database) with that budget on its deployment.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from agentdesk.embedded.stack import Stack
from tests.bench import budget_peers
from tests.bench.budget_traffic import AT_ONCE, LIMIT_USD, OUTPUT_TOKENS, USD_PER_MTOK, Provider, provider

GIVE_UP_AFTER_S = 240.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-peers", action="store_true")
    chosen = parser.parse_args()
    with provider() as server:
        rows = {"agentdesk": _ours(server), "check_then_call": budget_peers.check_then_call(server)}
        if not chosen.without_peers:
            rows["litellm_proxy"] = budget_peers.litellm(server)
    ours = rows["agentdesk"]
    figures: dict[str, Any] = {"at_once": AT_ONCE, "limit_usd": float(LIMIT_USD), "rows": rows}
    figures["holds"] = (
        ours["over_usd"] <= ours["one_estimate_missed_usd"]
        and ours["spent_usd"] == ours["booked_usd"]
        and float(LIMIT_USD) - ours["spent_usd"] < ours["one_call_usd"]
        and not ours["broken_rules"]
    )
    _table(rows)
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1


def _ours(server: Provider) -> dict[str, Any]:
    """64 tasks of the product, with a worker and a scheduler of their own."""
    with tempfile.TemporaryDirectory(prefix="agentdesk-bench-") as home:
        stack = Stack(Path(home), {"postgres", "valkey", "worker", "scheduler"})
        stack.open()
        try:
            stack.start_servers()
            os.environ.update(stack.environment)
            os.environ["AGENTDESK_SANDBOX_DRIVER"] = "local"
            os.environ["AGENTDESK_WORKER_CONCURRENCY"] = str(AT_ONCE * 5 // 4)
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
            os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
            _migrate()
            stack.start_program("worker")
            stack.start_program("scheduler")
            return _play(server)
        finally:
            stack.close()


def _migrate() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


def _play(server: Provider) -> dict[str, Any]:
    from tests import harness
    from workspaces.actions.budget_settings import create_budget
    from workspaces.domain.states import BudgetPeriod, BudgetScope
    from workspaces.models import BudgetAccount, ModelCall, Task
    from workspaces.queries.integrity import verify

    user = harness.make_user()
    price = str(USD_PER_MTOK)
    version = harness.scripted_profile(
        user,
        "",
        provider="openai",
        base_url=server.url,
        model="bench",
        provider_options={},
        max_output_tokens=OUTPUT_TOKENS,
        input_usd_per_mtok=price,
        output_usd_per_mtok=price,
    )
    create_budget(
        scope=BudgetScope.USER,
        period=BudgetPeriod.TOTAL,
        user=user,
        limit_usd=LIMIT_USD,
        actor=user,
        reason="the bench's",
    )
    places = [harness.make_workspace(user) for _ in range(AT_ONCE)]
    server.forget()
    began = time.monotonic()
    for place in places:
        harness.create_task(workspace=place, profile_version=version, instruction="Count.", actor=user)
    _wait_until_quiet()
    wall_s = time.monotonic() - began
    account = BudgetAccount.objects.get()
    calls = list(ModelCall.objects.filter(status="replied"))
    expected = [_expected(call) for call in calls]
    missed = [call.cost_usd - one for call, one in zip(calls, expected, strict=True) if call.cost_usd is not None]
    return {
        "calls": server.answered,
        "spent_usd": float(round(server.usd, 6)),
        "over_usd": float(round(max(Decimal(0), server.usd - LIMIT_USD), 6)),
        "refused": Task.objects.filter(status="waiting", waiting_for="budget").count(),
        "booked_usd": float(round(account.spent_usd, 6)),
        "one_call_usd": float(round(max(expected), 6)),
        "one_estimate_missed_usd": float(round(max(Decimal(0), *missed), 6)),
        "finished": Task.objects.filter(status="succeeded").count(),
        "wall_s": round(wall_s, 2),
        "broken_rules": sorted({result.rule.name for result in verify() if result.broken}),
    }


def _expected(call: Any) -> Decimal:
    """What had to be left for it, at the price of the bench."""
    return (call.reserved_input_tokens + call.reserved_output_tokens) * USD_PER_MTOK / 1_000_000


def _wait_until_quiet() -> None:
    """Every task has ended or waits for the budget, nothing is reserved, and that stays so for some looks."""
    from django.db.models import Q

    from workspaces.models import BudgetAccount, Task

    settled = Q(status__in=["succeeded", "failed"]) | Q(status="waiting", waiting_for="budget")
    deadline, quiet_since = time.monotonic() + GIVE_UP_AFTER_S, time.monotonic()
    while time.monotonic() - quiet_since < 4:
        busy = Task.objects.exclude(settled).exists() or BudgetAccount.objects.filter(reserved_usd__gt=0).exists()
        if busy:
            quiet_since = time.monotonic()
        if time.monotonic() > deadline:
            stuck = list(Task.objects.exclude(settled).values_list("pk", "status", "waiting_reason")[:5])
            raise SystemExit(f"not quiet after {GIVE_UP_AFTER_S} s: {stuck}")
        time.sleep(0.1)


def _table(rows: dict[str, dict[str, Any]]) -> None:
    print(f"{'':<20}{'calls let in':>14}{'spent USD':>12}{'over USD':>12}{'refused':>10}")
    for name, row in rows.items():
        if "not_run" in row:
            print(f"{name:<20}  did not run: {row['not_run']}")
            continue
        print(f"{name:<20}{row['calls']:>14}{row['spent_usd']:>12.4f}{row['over_usd']:>12.4f}{row['refused']:>10}")
    ours = rows["agentdesk"]
    print(f"one call is expected to cost up to {ours['one_call_usd']:.4f} USD, and cost at most", end=" ")
    print(f"{ours['one_estimate_missed_usd']:.4f} USD more")
    print("refused: of ours, tasks that wait for the budget and go on when it is raised; of the others, requests")


if __name__ == "__main__":
    sys.exit(main())
