"""`make chaos SEED=n` or `SEEDS=a-b`: a storm a seed, a table of what was counted, one JSON object as the last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from agentdesk import environment
from tests.chaos.engine import Engine


def main() -> int:
    results = []
    engine = Engine(Path(tempfile.mkdtemp(prefix="chaos-engine-")))
    try:
        for seed in seeds(os.environ.get("SEEDS") or os.environ.get("SEED") or "1"):
            results.append(once(seed, engine.folder, sys.argv[1:]))
    finally:
        engine.remove()
    table(results)
    print(json.dumps(summary(results)), flush=True)
    return 0 if results and all(result["holds"] for result in results) else 1


def seeds(text: str) -> list[int]:
    """`7`, `1-20` or `3,5,8`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def once(seed: int, engine: Path, more: list[str]) -> dict[str, Any]:
    print(f"--- seed {seed}", flush=True)
    last = ""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.once", "--seed", str(seed), "--engine", str(engine), *more],
        cwd=environment.REPO,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout or ():
            last = line
            if not line.startswith("{"):
                print(line, end="", flush=True)
    try:
        found: dict[str, Any] = json.loads(last)
    except ValueError:
        return {"seed": seed, "holds": False, "problems": {"the run itself failed": [last]}}
    return found


def counted(results: list[dict[str, Any]], part: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.get(part, {}))
    return total


def table(results: list[dict[str, Any]]) -> None:
    print("\n  seed  store     kills  stops  cuts  tasks  effects  twice  missing  broken rules  seconds")
    for result in results:
        problems, figures = result.get("problems", {}), result.get("figures", {})
        print(
            f"{result['seed']:>6}  {result.get('store', ''):<8}"
            f"{sum(result.get('kills', {}).values()):>7}{sum(result.get('stops', {}).values()):>7}"
            f"{sum(result.get('cuts', {}).values()):>6}{figures.get('tasks', 0) + figures.get('forks', 0):>7}"
            f"{sum(result.get('bank', {}).values()):>9}{len(problems.get('effects done twice', [])):>7}"
            f"{len(problems.get('effects missing', [])):>9}{sum(result.get('rules', {}).values()):>14}"
            f"{result.get('seconds', 0):>9}  {'holds' if result['holds'] else 'DOES NOT HOLD'}"
        )
        for name, found in problems.items():
            print(f"        {name}: {'; '.join(found)[:300]}")


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "holds": bool(results) and all(result["holds"] for result in results),
        "seeds": len(results),
        "failed": [result["seed"] for result in results if not result["holds"]],
        "kills": sum(counted(results, "kills").values()),
        **{part: dict(counted(results, part)) for part in ("stops", "cuts", "bank", "figures", "asked", "rules")},
        "killed": dict(counted(results, "kills")),
        "seconds": round(sum(result.get("seconds", 0) for result in results), 1),
        "problems": {result["seed"]: result["problems"] for result in results if result.get("problems")},
    }


if __name__ == "__main__":
    sys.exit(main())
