"""Usage records by the million with their rollups, by set-based SQL: 90 days of people, tasks, steps and model calls.

What has no column of its own is copied from one real task that was played before. Models differ in price, one has
none; tasks end well, badly or not at all; some calls are retries or summaries, some steps lie in incidents; sandboxes
and storage are metered as the product does. Only for empty databases of tests and benches: triggers are off meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

from django.db import connection, transaction
from django.db.models import Model

DAYS = 90
RECORDS_A_TASK = 97  # of model calls and of the sandbox, measured: `Made.records` says what came of it


@dataclass(frozen=True, slots=True)
class Size:
    tasks: int
    users: int
    workspaces: int
    profiles: int = 12
    storage_hours: int = 6  # between two storage records of a workspace


@dataclass(frozen=True, slots=True)
class Made:
    records: int
    rollups: int
    calls: int
    tasks: int
    user: int  # one of the busiest
    workspace: int
    task: int
    profile: int
    model: str


def size_for(records: int) -> Size:
    """Hundreds of users and about 50,000 tasks at five million."""
    tasks = max(60, records // RECORDS_A_TASK)
    return Size(tasks=tasks, users=max(12, tasks // 170), workspaces=max(16, tasks // 220))


def make_usage(size: Size, *, now: datetime, template: Any) -> Made:
    """`template`: a finished Task with a step, a model call and an incident-free history; it is what copies are of."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL work_mem = '128MB'")
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("SELECT setseed(0.5)")
        first = _first_ids(cursor)
        _people(cursor, size, template, first)
        _plan(cursor, size, now, first)
        _tasks(template)
        _calls(template, now)
        _incidents(cursor, now)
        _records(cursor, size, now)
        _rollups(cursor)
        _sequences(cursor)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute("ANALYZE")
    return _made(size)


def _first_ids(cursor: Any) -> dict[str, int]:
    names = ("user", "workspace", "agentprofile", "profileversion", "task", "branch", "step", "modelcall", "incident")
    found = {}
    for name in names:
        cursor.execute(f"SELECT coalesce(max(id), 0) FROM workspaces_{name}")
        found[name] = cursor.fetchone()[0]
    return found


def _copies(rows_of: type[Model], pk: int, source: str, /, **columns: str) -> None:
    """One row for each of `source`, like that of `pk` but for `columns` (SQL expressions)."""
    names = [field.column for field in rows_of._meta.concrete_fields if not getattr(field, "generated", False)]
    picked = ", ".join(columns.get(name, f'template."{name}"') for name in names)
    listed = ", ".join(f'"{name}"' for name in names)
    table = rows_of._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({listed}) SELECT {picked} FROM {source} CROSS JOIN {table} AS template"
            f" WHERE template.id = {int(pk)}"
        )


def _people(cursor: Any, size: Size, template: Any, first: dict[str, int]) -> None:
    from workspaces.models import AgentProfile, Membership, ProfileVersion, User, Workspace

    version = template.profile_version
    many = "generate_series(1, {}) AS n"
    _copies(
        User,
        template.created_by_id,
        many.format(size.users),
        id=f"{first['user']} + n",
        username="'person' || lpad(n::text, 4, '0')",
        email="''",
        is_staff="false",
    )
    _copies(
        Workspace,
        template.workspace_id,
        many.format(size.workspaces),
        id=f"{first['workspace']} + n",
        name="'place' || lpad(n::text, 4, '0')",
        owner_id=f"{first['user']} + 1 + (n - 1) % {size.users}",
        sandbox_key="'bench-' || n",
        held_by_id="NULL",
        slept_snapshot_id="NULL",
        forked_from_id="NULL",
    )
    _copies(
        Membership,
        Membership.objects.get(workspace=template.workspace_id, user=template.created_by_id).pk,
        many.format(size.workspaces),
        id="(SELECT max(id) FROM workspaces_membership) + n",
        workspace_id=f"{first['workspace']} + n",
        user_id=f"{first['user']} + 1 + (n - 1) % {size.users}",
    )
    _copies(
        AgentProfile,
        version.profile_id,
        many.format(size.profiles),
        id=f"{first['agentprofile']} + n",
        name="'agent ' || n",
    )
    # model, provider and USD per million input tokens; output costs 5 times, a cached token a tenth; the last has none
    cursor.execute(
        """
        CREATE TEMP TABLE bench_model ON COMMIT DROP AS SELECT * FROM (VALUES
            (0, 'claude-sonnet-4-5', 'anthropic', 3.0), (1, 'gpt-4.1-mini', 'openai', 0.4),
            (2, 'claude-haiku-4-5', 'anthropic', 1.0), (3, 'gpt-4.1', 'openai', 2.0),
            (4, 'o4-mini', 'openai', 1.1), (5, 'local/qwen-coder', 'openai', NULL)
        ) AS m(place, model, provider, usd)
        """
    )
    _copies(
        ProfileVersion,
        version.pk,
        many.format(size.profiles) + " JOIN bench_model AS m ON m.place = n % 6",
        id=f"{first['profileversion']} + n",
        profile_id=f"{first['agentprofile']} + n",
        number="1",
        model="m.model",
        provider="m.provider",
    )


def _plan(cursor: Any, size: Size, now: datetime, first: dict[str, int]) -> None:
    """What will be: tasks with their length and begin, then their steps. Few people and places do much of the work."""
    cursor.execute(
        """
        CREATE TEMP TABLE bench_task ON COMMIT DROP AS
        SELECT %(task)s + n AS id, %(branch)s + n AS branch_id, w AS workspace_id,
               CASE WHEN r_user < 0.7 THEN %(user)s + 1 + (w - %(workspace)s - 1) %% %(users)s
                    ELSE %(user)s + 1 + (%(users)s * random() * random())::int %% %(users)s END AS user_id,
               p AS profile_id, p - %(profile)s + %(version)s AS version_id, m.model, m.usd,
               least(200, greatest(1, exp(2.7 + 0.9 * (random() + random() + random() + random() - 2) * 1.7)))::int
                   AS steps,
               -- more of late than long ago, and more by day than by night
               date_trunc('day', %(now)s - %(days)s * (1 - sqrt(random())) * interval '1 day')
                   + (6 + 14 * (random() + random()) / 2) * interval '1 hour' AS began,
               random() AS fate
          FROM (SELECT n, %(workspace)s + 1 + (%(workspaces)s * random() * random())::int %% %(workspaces)s AS w,
                       %(profile)s + 1 + (%(profiles)s * random() * random())::int %% %(profiles)s AS p,
                       random() AS r_user
                  FROM generate_series(1, %(tasks)s) AS n OFFSET 0) AS chosen
          JOIN bench_model AS m ON m.place = (p - %(profile)s) %% 6
        """,
        {
            "now": now,
            "days": DAYS,
            "tasks": size.tasks,
            "users": size.users,
            "workspaces": size.workspaces,
            "profiles": size.profiles,
            "task": first["task"],
            "branch": first["branch"],
            "user": first["user"],
            "workspace": first["workspace"],
            "profile": first["agentprofile"],
            "version": first["profileversion"],
        },
    )
    # nothing lies in the future, not even the last step of today's tasks
    cursor.execute(
        "UPDATE bench_task SET began = began - interval '1 day' WHERE began + steps * interval '50 seconds' > %s", [now]
    )
    cursor.execute(
        """
        CREATE TEMP TABLE bench_step ON COMMIT DROP AS
        SELECT %s + row_number() OVER () AS id, t.id AS task_id, t.branch_id, number,
               t.began + number * interval '40 seconds' AS at, random() AS luck
          FROM bench_task AS t, generate_series(1, t.steps) AS number
        """,
        [first["step"]],
    )
    cursor.execute(
        """
        CREATE TEMP TABLE bench_call ON COMMIT DROP AS
        SELECT %s + row_number() OVER () AS id, c.* FROM (
            SELECT s.id AS step_id, s.task_id, s.number, s.at, 'step' AS purpose, 'failed' AS status, 1 AS attempt,
                   NULL AS used FROM bench_step AS s WHERE s.luck < 0.03
            UNION ALL
            SELECT s.id, s.task_id, s.number, s.at + interval '2 seconds', 'step', 'replied',
                   CASE WHEN s.luck < 0.03 THEN 2 ELSE 1 END, CASE WHEN s.luck < 0.03 THEN 'retry' ELSE 'step' END
              FROM bench_step AS s
            UNION ALL
            SELECT s.id, s.task_id, s.number, s.at + interval '1 second', 'summary', 'replied', 1, 'summary'
              FROM bench_step AS s WHERE s.luck > 0.985
            UNION ALL
            SELECT s.id, s.task_id, s.number, s.at + interval '3 seconds', 'claim_check', 'dropped', 1, NULL
              FROM bench_step AS s WHERE s.luck BETWEEN 0.5 AND 0.502
        ) AS c
        """,
        [first["modelcall"]],
    )
    for table in ("bench_task", "bench_step", "bench_call"):
        cursor.execute(f"ANALYZE {table}")


def _tasks(template: Any) -> None:
    from workspaces.models import Branch, Task

    _copies(Branch, template.branch_id, "bench_task AS b", id="b.branch_id", task_id="b.id", number="1")
    ended = "b.began + b.steps * interval '40 seconds'"
    _copies(
        Task,
        template.pk,
        "bench_task AS b",
        id="b.id",
        workspace_id="b.workspace_id",
        created_by_id="b.user_id",
        profile_version_id="b.version_id",
        branch_id="b.branch_id",
        title="'Task ' || b.id",
        status="CASE WHEN b.fate < 0.78 THEN 'succeeded' WHEN b.fate < 0.93 THEN 'failed' WHEN b.fate < 0.97 THEN"
        " 'cancelled' ELSE 'paused' END",
        finished_at=f"CASE WHEN b.fate < 0.97 THEN {ended} END",
        status_since=ended,
        created_at="b.began",
        steps_taken="b.steps",
        root_id="NULL",
        forked_from_id="NULL",
        latch_id="NULL",
        disk_restore_id="NULL",
    )


def _calls(template: Any, now: datetime) -> None:
    from workspaces.models import ModelCall, Step

    step = Step.objects.filter(task=template).order_by("pk")[0]
    call = ModelCall.objects.filter(task=template, status="replied").order_by("pk")[0]
    Step.objects.filter(pk=step.pk).update(manifest={})
    _copies(
        Step,
        step.pk,
        "bench_step AS b",
        id="b.id",
        task_id="b.task_id",
        branch_id="b.branch_id",
        number="b.number",
        started_at="b.at",
        settled_at="b.at + interval '20 seconds'",
    )
    _copies(
        ModelCall,
        call.pk,
        "bench_call AS b JOIN bench_task AS t ON t.id = b.task_id",
        id="b.id",
        task_id="b.task_id",
        step_id="b.step_id",
        purpose="b.purpose",
        status="b.status",
        attempt="b.attempt",
        model="t.model",
        text="''",
        calls="'[]'",
        error_kind="CASE WHEN b.status = 'failed' THEN CASE WHEN b.id % 3 = 0 THEN 'timeout' ELSE 'server' END"
        " ELSE '' END",
        input_tokens="CASE WHEN b.used IS NOT NULL THEN 600 + (b.id * 7919) % 900 END",
        output_tokens="CASE WHEN b.used IS NOT NULL THEN 80 + (b.id * 104729) % 700 END",
        cost_usd="NULL",
        started_at="b.at",
        finished_at="b.at + interval '10 seconds'",
    )


def _incidents(cursor: Any, now: datetime) -> None:
    """One task in 25 walked in a circle for some of its steps."""
    cursor.execute(
        """
        INSERT INTO workspaces_incident (task_id, branch_id, kind, severity, pattern, cause, fingerprint, words,
            evidence, first_seq, last_seq, first_step, last_step, count, rung, responses, nudges, state, opened_at,
            grew_at, resolution)
        SELECT id, branch_id, CASE WHEN id % 4 = 0 THEN 'paralysis' ELSE 'loop' END, 'error', 'same_call_same_result',
               'loop/same_call_same_result/read_file/error', 'bench', 'The same call gave the same result.', '[]',
               steps / 3 * 8, steps / 2 * 8, steps / 3, steps / 2, 3, 'noted', '[]', 0, 'open',
               began + steps / 3 * interval '40 seconds', began + steps / 2 * interval '40 seconds', ''
          FROM bench_task WHERE steps > 8 AND id % 25 = 0
        """
    )


def _records(cursor: Any, size: Size, now: datetime) -> None:
    """Of model calls, then of sandboxes, then of disks."""
    cursor.execute(
        """
        INSERT INTO workspaces_usagerecord (user_id, workspace_id, task_id, step_id, model_call_id, profile_id, model,
            purpose, unit, quantity, unit_price_usd, cost_usd, price_source, created_at)
        SELECT t.user_id, t.workspace_id, t.id, c.step_id, c.id, t.profile_id, t.model, c.used, u.unit, u.quantity,
               t.usd * u.times / 1000000, round((t.usd * u.times / 1000000 * u.quantity)::numeric, 9),
               CASE WHEN t.usd IS NULL THEN 'unknown' ELSE 'genai-prices' END, c.at + interval '10 seconds'
          FROM bench_call AS c
          JOIN bench_task AS t ON t.id = c.task_id
          CROSS JOIN LATERAL (VALUES
              ('input_tokens', 1.0, 600 + (c.id * 7919) % 900),
              ('cached_input_tokens', 0.1, CASE WHEN c.number > 1 THEN 1500 + 400 * c.number END),
              ('cache_write_tokens', 1.25, CASE WHEN t.model LIKE 'claude%' THEN 300 + (c.id * 31) % 500 END),
              ('output_tokens', 5.0, 80 + (c.id * 104729) % 700),
              ('reasoning_tokens', 5.0, CASE WHEN t.model LIKE 'o4%' THEN 200 + (c.id * 13) % 900 END)
          ) AS u(unit, times, quantity)
         WHERE c.used IS NOT NULL AND u.quantity IS NOT NULL
         ORDER BY c.at
        """
    )
    cursor.execute(
        """
        INSERT INTO workspaces_usagerecord (user_id, workspace_id, task_id, step_id, profile_id, model, purpose, unit,
            quantity, unit_price_usd, cost_usd, price_source, created_at)
        SELECT t.user_id, t.workspace_id, t.id, s.id, t.profile_id, '', 'sandbox', u.unit, u.quantity, u.usd,
               round((u.usd * u.quantity)::numeric, 9), 'site price', s.at + interval '20 seconds'
          FROM bench_step AS s
          JOIN bench_task AS t ON t.id = s.task_id
          CROSS JOIN LATERAL (VALUES
              ('cpu_seconds', 0.05 / 3600, round((1 + 20 * s.luck)::numeric, 6)),
              ('memory_gib_seconds', 0.005 / 3600, round((5 + 20 * s.luck)::numeric, 6))) AS u(unit, usd, quantity)
         WHERE s.number % 2 = 0
         ORDER BY s.at
        """
    )
    cursor.execute(
        """
        INSERT INTO workspaces_usagerecord (user_id, workspace_id, model, purpose, unit, quantity, unit_price_usd,
            cost_usd, price_source, created_at)
        SELECT w.owner_id, w.id, '', 'storage', 'storage_gib_hours', q.quantity, 0.1 / 730,
               round((q.quantity * 0.1 / 730)::numeric, 9), 'site price', at
          FROM workspaces_workspace AS w,
               generate_series(%(now)s - %(days)s * interval '1 day', %(now)s, %(hours)s * interval '1 hour') AS at,
               LATERAL (SELECT round((0.5 + w.id %% 17)::numeric * %(hours)s, 6) AS quantity) AS q
         WHERE w.sandbox_key LIKE 'bench-%%'
        """,
        {"now": now - timedelta(minutes=1), "days": DAYS - 1, "hours": size.storage_hours},
    )


def _rollups(cursor: Any) -> None:
    cursor.execute(
        """
        INSERT INTO workspaces_usagerollup (hour, task_id, workspace_id, user_id, profile_id, model, purpose, unit,
            records, quantity, cost_usd, unpriced, unpriced_quantity)
        SELECT date_trunc('hour', created_at, 'UTC'), task_id, workspace_id, user_id, profile_id, model, purpose, unit,
               count(*), sum(quantity), coalesce(sum(cost_usd), 0), count(*) FILTER (WHERE cost_usd IS NULL),
               coalesce(sum(quantity) FILTER (WHERE cost_usd IS NULL), 0)
          FROM workspaces_usagerecord AS r
         WHERE NOT EXISTS (SELECT FROM workspaces_usagerollup AS known
                            WHERE known.hour = date_trunc('hour', r.created_at, 'UTC')
                              AND known.task_id IS NOT DISTINCT FROM r.task_id)
         GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
         ORDER BY 1
        """
    )
    cursor.execute("DELETE FROM workspaces_usageday")  # of the task that was copied: the whole is made here
    cursor.execute(fill_of_days())


def fill_of_days() -> str:
    """What makes them where an older version is upgraded."""
    fill: str = import_module("workspaces.migrations.0033_usage_by_day").FILL
    return fill


def _sequences(cursor: Any) -> None:
    names = ("user", "workspace", "membership", "agentprofile", "profileversion", "task", "branch", "step", "modelcall")
    for name in names:
        table = f"workspaces_{name}"
        cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))")


def _made(size: Size) -> Made:
    from workspaces.models import ModelCall, Task, UsageRecord, UsageRollup

    def busiest(column: str) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {column} FROM workspaces_usagerollup WHERE task_id IS NOT NULL AND model <> ''"
                f" AND cost_usd > 0 GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
            )
            return cursor.fetchone()[0]

    return Made(
        records=UsageRecord.objects.count(),
        rollups=UsageRollup.objects.count(),
        calls=ModelCall.objects.count(),
        tasks=Task.objects.count(),
        user=busiest("user_id"),
        workspace=busiest("workspace_id"),
        task=busiest("task_id"),
        profile=busiest("profile_id"),
        model=busiest("model"),
    )
