"""`make bench-quota`: what admission gives and costs, in a simulation of ten thousand users and at the database.

Bars of the simulation: of a pool that everybody wants at least 0.9 is used, Jain's index over the users that contend
is at least 0.95, retries stay within the retry budget, and fewer calls are refused than of either strategy that does
not coordinate.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tests.bench.quota_database import database
from tests.bench.quota_simulation import simulate

COLUMNS = {
    "utilisation": "used of the pool",
    "jain": "Jain's index",
    "wait_p50_s": "wait p50, s",
    "wait_p99_s": "p99, s",
    "wait_max_s": "longest, s",
    "small_p99_s": "p99 of small users, s",
    "retries": "retries",
    "refused": "refused",
    "ended_min": "all done, min",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--only", choices=("simulation", "database"))
    chosen = parser.parse_args()
    figures: dict[str, Any] = {}
    if chosen.only != "database":
        figures["simulation"] = simulation(chosen.users, chosen.tasks, chosen.seed)
    if chosen.only != "simulation":
        figures["database"] = database()
    figures["holds"] = all(part["holds"] for part in figures.values())
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1


def simulation(users: int, tasks: int, seed: int) -> dict[str, Any]:
    """Prints a table and returns the figures."""
    found = simulate(users=users, tasks=tasks, seed=seed)
    print(f"{users:,} users, {tasks:,} tasks, {found['agentdesk']['calls']:,} calls at one pool\n")
    print("| strategy | " + " | ".join(COLUMNS.values()) + " |")
    print("|---|" + "---:|" * len(COLUMNS))
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{row[column]:,}" for column in COLUMNS) + " |")
    ours, *others = found.values()
    print(
        f"\nOurs retried {ours['retries']:,} times, the budget allowed {ours['retries_at_most']:,}; the index is over "
        f"{ours['jain_users']:,} users, the use over {ours['minutes_contended']} minutes; at most "
        f"{ours['longest_queue']:,} waited; it took {ours['took_s']} s.\n"
    )
    holds = {
        "utilisation": ours["utilisation"] >= 0.9,
        "fairness": ours["jain"] >= 0.95,
        "retries": ours["retries"] <= ours["retries_at_most"],
        "refused": all(ours["refused"] < other["refused"] for other in others),
    }
    return {"users": users, "tasks": tasks, "seed": seed, **found, "bars": holds, "holds": all(holds.values())}


if __name__ == "__main__":
    sys.exit(main())
