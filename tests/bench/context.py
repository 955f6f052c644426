"""`make bench-context`: bytes that a step writes about its context, while the history grows to 500 steps.

Bar: per step, over steps 401 to 500, at most 1.1 times what it was over steps 51 to 150. Measured in Postgres: the
bytes of every new row of every table that has rows of the task, and the write-ahead log of the whole server. Beside it
the same messages (text, call, result) saved by LangGraph's Postgres checkpointer in one thread: a list that grows, and
its beta DeltaChannel, in an environment of their own.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.bench.ground import installation, tell

REPO = Path(__file__).resolve().parents[2]
PEERS = ("langgraph==1.2.24", "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary]")
STEPS = 500
EARLY, LATE = (51, 150), (401, 500)
BAR = 1.1
WORDS = 38, 28  # of what the model says and of what it notes in a step: about 230 and 170 characters


def words(step: int, count: int) -> str:
    """Different in every step, and no easier to compress than speech: repeated text would flatter whoever copies it."""
    chosen = random.Random(f"{step} {count}")
    letters = "etaoinshrdlucmfw"
    return " ".join("".join(chosen.choices(letters, k=chosen.randint(2, 8))) for _ in range(count))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--without-peers", action="store_true")
    chosen = parser.parse_args()
    with installation() as stack:
        peers = {} if chosen.without_peers else _langgraph(stack.environment["DATABASE_URL"], chosen.steps)
        figures = _ours(chosen.steps)
        figures |= _ours(chosen.steps, window_tokens=24_000, name="compacting")
        figures |= peers
    ratios = [
        value for name, value in figures.items() if name.startswith(("whole_", "compacting_")) and "ratio" in name
    ]
    figures |= {"bar": BAR, "holds": all(ratio <= BAR for ratio in ratios)}
    return tell(figures)


def _ours(steps: int, *, window_tokens: int = 1_000_000, name: str = "whole") -> dict[str, Any]:
    """One scripted task through the real engine; with a small window the context is compacted now and then."""
    from tests import harness
    from workspaces.engine import runner
    from workspaces.models import Message, Summary, Task

    user = harness.make_user()
    replies = [
        {
            "text": words(step, WORDS[0]),
            "calls": [{"name": "note", "arguments": {"section": "plan", "text": words(step, WORDS[1])}}],
        }
        for step in range(steps - 1)
    ]
    replies.append({"calls": [{"name": "finish", "arguments": {"summary": "done"}}]})
    scenario = json.dumps({"replies": replies})
    task = harness.scripted_task(
        scenario,
        workspace=harness.make_workspace(user),
        max_steps=steps + 1,
        context_window_tokens=window_tokens,
        max_output_tokens=1_000,
        detectors={"observe_only": True},  # a task that only takes notes would rightly be asked about
    )
    rows, wal = [_bytes_of(task.pk)], [_wal()]
    while not Task.objects.filter(pk=task.pk, finished_at__isnull=False).exists():
        runner.advance(task.pk)
        rows.append(_bytes_of(task.pk))
        wal.append(_wal())
    task.refresh_from_db()
    assert (task.status, task.steps_taken) == ("succeeded", steps), (task.status, task.steps_taken)
    return {
        f"{name}_steps": task.steps_taken,
        f"{name}_messages": Message.objects.filter(task=task).count(),
        f"{name}_summaries": Summary.objects.filter(task=task).count(),
        **_spans(name, "row_bytes", rows),
        **_spans(name, "wal_bytes", wal, judged=False),
        f"{name}_row_megabytes": round((rows[-1] - rows[0]) / 1e6, 2),
    }


def _spans(name: str, what: str, totals: list[int], *, judged: bool = True) -> dict[str, Any]:
    """Bytes a step early and late, and how they compare. `totals`: after each step."""
    early, late = (_mean(totals, *_scaled(span, len(totals) - 1)) for span in (EARLY, LATE))
    ratio = "ratio" if judged else "quotient"
    return {
        f"{name}_{what}_per_step_early": round(early),
        f"{name}_{what}_per_step_late": round(late),
        f"{name}_{what}_{ratio}": round(late / early, 3),
    }


def _scaled(span: tuple[int, int], steps: int) -> tuple[int, int]:
    return span[0] * steps // STEPS, span[1] * steps // STEPS


def _mean(totals: list[int], first: int, last: int) -> float:
    return (totals[last] - totals[first - 1]) / (last - first + 1)


def _bytes_of(task_id: int) -> int:
    """Bytes of all rows that are about the task, in every table that names one."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.table_name FROM information_schema.columns c WHERE c.table_schema = 'public'"
            " AND c.column_name = 'task_id' AND c.table_name LIKE 'workspaces_%%' ORDER BY 1"
        )
        tables = [table for (table,) in cursor.fetchall()]
        parts = [
            f"(SELECT coalesce(sum(pg_column_size(r.*)), 0) FROM {table} r WHERE r.task_id = %s)" for table in tables
        ]
        parts.append("(SELECT coalesce(sum(pg_column_size(r.*)), 0) FROM workspaces_contextframe r)")
        cursor.execute(f"SELECT {' + '.join(parts)}", [task_id] * len(tables))
        return int(cursor.fetchone()[0])


def _wal() -> int:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
        return int(cursor.fetchone()[0])


_PEER = """
import json, sys
from typing import Annotated, TypedDict
from operator import add
import psycopg
from psycopg.rows import dict_row
from langgraph.graph import StateGraph, START, END
from langgraph.checkpoint.postgres import PostgresSaver
URL, KIND, TEXTS = sys.argv[1], sys.argv[2], json.load(sys.stdin)
STEPS = len(TEXTS)
def appended(state, writes):
    return list(state or []) + [item for write in writes for item in write]
if KIND == "delta":
    from langgraph.channels.delta import DeltaChannel
    class State(TypedDict):
        history: Annotated[list, DeltaChannel(appended)]
        n: int
else:
    class State(TypedDict):
        history: Annotated[list, add]
        n: int
connection = psycopg.connect(URL, autocommit=True, prepare_threshold=0, row_factory=dict_row)
saver = PostgresSaver(connection)
saver.setup()
def size():
    total = 0
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        row = connection.execute(
            f"SELECT coalesce(sum(pg_column_size(r.*)), 0) AS n FROM {table} r WHERE thread_id = %s", (KIND,)
        ).fetchone()
        total += int(row["n"])
    return total
sizes = [size()]
def step(state):
    if state.get("n", 0):
        sizes.append(size())
    n = state.get("n", 0)
    arguments = json.dumps({"section": "plan", "text": TEXTS[n][1]})
    said = {"by": "model", "content": TEXTS[n][0],
            "calls": [{"call_id": f"call_{n}_0", "name": "note", "arguments": arguments}]}
    done = {"by": "tool", "call_id": f"call_{n}_0", "content": "Noted: written to plan, now 170 characters."}
    return {"history": [said, done], "n": n + 1}
graph = StateGraph(State)
graph.add_node("step", step)
graph.add_edge(START, "step")
graph.add_conditional_edges("step", lambda state: END if state["n"] >= STEPS else "step")
app = graph.compile(checkpointer=saver)
app.invoke({"history": [{"by": "user", "content": "Do the work."}], "n": 0},
           {"configurable": {"thread_id": KIND}, "recursion_limit": STEPS + 5}, durability="sync")
sizes.append(size())
print("SIZES " + json.dumps(sizes))
"""


def _langgraph(database_url: str, steps: int) -> dict[str, Any]:
    """Each in a database of its own on the same server."""
    from tests.bench.engine import _as_database

    python = _environment()
    figures: dict[str, Any] = {}
    for kind in ("list", "delta"):
        url = _as_database(database_url, f"langgraph_{kind}")
        ran = subprocess.run(
            [str(python), "-c", _PEER, url, kind],
            input=json.dumps([[words(step, count) for count in WORDS] for step in range(steps)]),
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        found = [line[6:] for line in ran.stdout.splitlines() if line.startswith("SIZES ")]
        if not found:
            raise SystemExit(f"the peer (langgraph, {kind}) did not run: {ran.stderr[-1500:]}")
        sizes = json.loads(found[0])
        figures |= _spans(f"langgraph_{kind}", "row_bytes", sizes)
        figures[f"langgraph_{kind}_row_megabytes"] = round((sizes[-1] - sizes[0]) / 1e6, 2)
    return figures


def _environment() -> Path:
    home = REPO / "build" / "peers" / "langgraph"
    python = home / "bin" / "python"
    if not python.exists():
        print(f"installing {', '.join(PEERS)} into an environment of its own …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PEERS], check=True, stdout=sys.stderr)
    return python


if __name__ == "__main__":
    sys.exit(main())
