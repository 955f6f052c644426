"""What tests of actions, engine and pages share: people, workspaces, scripted tasks, and a worker of one thread."""

from __future__ import annotations

import asyncio
import itertools
import textwrap
import time
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.utils import timezone

from workspaces.actions import quota_sweep, sendings
from workspaces.actions.profiles import create_profile
from workspaces.actions.quota_pools import forget_pools
from workspaces.actions.sendings import Claimed, Result
from workspaces.actions.tasks import create_task
from workspaces.actions.workspaces import create_workspace, set_member
from workspaces.domain.quotas import PoolState
from workspaces.domain.retry_budget import unblock
from workspaces.domain.roles import Role
from workspaces.domain.states import TaskStatus
from workspaces.engine import courier, runner
from workspaces.models import (
    Delivery,
    Endpoint,
    Event,
    ProfileVersion,
    QuotaClaim,
    QuotaPool,
    Task,
    User,
    Workspace,
)
from workspaces.queries.integrity import verify

_count = itertools.count(1)

TOOLS = [
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "search_files",
    "shell",
    "note",
    "ask_operator",
    "finish",
]

SEND_INVOICE: dict[str, Any] = {
    "name": "send_invoice",
    "description": "Send an invoice to a customer. It cannot be called back.",
    "parameters": {
        "type": "object",
        "properties": {"customer": {"type": "string"}, "amount": {"type": "number", "minimum": 0}},
        "required": ["customer", "amount"],
        "additionalProperties": False,
    },
    "effect": "irreversible",
    "command": "cat >> sent.jsonl; echo >> sent.jsonl; echo sent",
}


def make_user(name: str = "", **fields: Any) -> User:
    """Without a password, which would take long to hash: tests sign in by `client.force_login`."""
    return User.objects.create_user(name or f"user{next(_count)}", **fields)


def make_workspace(owner: User, *, driver: str = "local", name: str = "") -> Workspace:
    return create_workspace(name=name or f"ws{next(_count)}", owner=owner, driver=driver, actor=owner)


def add_member(workspace: Workspace, user: User, role: Role) -> None:
    set_member(workspace, user=user, role=role, actor=workspace.owner)


def scripted_profile(owner: User, scenario: str, **fields: Any) -> ProfileVersion:
    """A profile that plays `scenario` (YAML, may be indented)."""
    settings: dict[str, Any] = {
        "provider": "scripted",
        "model": "scripted",
        "tools": TOOLS,
        "provider_options": {"scenario_text": textwrap.dedent(scenario)},
        "local_allowed": True,
    }
    return create_profile(name=f"profile{next(_count)}", workspace=None, actor=owner, **(settings | fields))


def scripted_task(scenario: str, *, workspace: Workspace | None = None, driver: str = "local", **profile: Any) -> Task:
    workspace = workspace or make_workspace(make_user(), driver=driver)
    version = scripted_profile(workspace.owner, scenario, **profile)
    return create_task(workspace=workspace, profile_version=version, instruction="Do the work.", actor=workspace.owner)


def work(task: Task, *, until: Callable[[Task], bool] | None = None, limit: int = 200, tampered: bool = False) -> Task:
    """Advance the task in this thread until nothing is due for it (or `until` holds). Returns it fresh.

    Its history is verified then; `tampered` is for a test that has written in it by hand.
    """
    for _ in range(limit):
        task.refresh_from_db()
        status = TaskStatus(task.status)
        due = status in (TaskStatus.QUEUED, TaskStatus.RUNNING, TaskStatus.PAUSING) or (
            status is TaskStatus.PAUSED and task.disk_restore_id is not None
        )
        if not due or (until is not None and until(task)):
            if not tampered:
                check_history(task)
            return task
        runner.advance(task.pk)
    raise AssertionError(f"{task} is still {task.status} after {limit} advances: {kinds(task)[-12:]}")


def quota_pool(version: ProfileVersion, **limits: int) -> QuotaPool:
    """A pool by hand, with limits, for all that the version's account asks."""
    pool = QuotaPool.objects.create(
        **version.allowance, group="*", name="the pool", by_hand=True, limits=limits, created_at=timezone.now()
    )
    forget_pools()
    return pool


def minute_passes() -> int:
    """What was used at every pool is older than a minute; returns how many tasks were woken."""
    for pool in QuotaPool.objects.all():
        state = PoolState.from_json(pool.state)
        state.forget(timezone.now().timestamp() + 120)
        QuotaPool.objects.filter(pk=pool.pk).update(state=state.as_json())
    return quota_sweep.look()


def quota_frees() -> int:
    """Whatever tasks wait for at their quota pools has passed; returns how many were woken."""
    for pool in QuotaPool.objects.all():
        state = PoolState.from_json(pool.state)
        unblock(state)
        state.ramp = None
        QuotaPool.objects.filter(pk=pool.pk).update(state=state.as_json())
    QuotaClaim.objects.update(not_before=None)
    return quota_sweep.look()


def check_history(task: Task) -> None:
    """Every rule of `manage.py verify` holds for the task."""
    broken = [f"{result.rule.name}: {row.what}" for result in verify(task.pk) for row in result.rows]
    assert not broken, broken


def kinds(task: Task) -> list[str]:
    """The kinds of the task's events, in order."""
    return list(Event.objects.filter(task=task).order_by("seq").values_list("kind", flat=True))


def events(task: Task, kind: str) -> list[dict[str, Any]]:
    return list(Event.objects.filter(task=task, kind=kind).order_by("seq").values_list("data", flat=True))


def somebody_waits_for_a_lock() -> bool:
    """In this test's database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database())"
        )
        return bool(cursor.fetchone()[0])


def eventually(check: Callable[[], Any], *, within_s: float = 10.0, what: str = "") -> Any:
    """The first true value of `check`, asked every 20 ms."""
    deadline = time.monotonic() + within_s
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within_s} s: {what or check}"
        time.sleep(0.02)


def courier_runs_once(*, deliveries_fall_due: bool = False) -> list[tuple[Claimed, Result]]:
    """What the courier's thread does, in this one: digest, then send what is due until nothing is. Returns each try.

    `deliveries_fall_due`: the pause before the next try of each message is over.
    """
    if deliveries_fall_due:
        Endpoint.objects.update(held_until=None)
        Delivery.objects.filter(state="pending").update(next_at=timezone.now())
    courier.digest()
    done: list[tuple[Claimed, Result]] = []
    while claims := sendings.claim(64):
        results = asyncio.run(_sent_together(claims))
        for claimed, result in zip(claims, results, strict=True):
            sendings.finished(claimed, result)
            done.append((claimed, result))
    return done


async def _sent_together(claims: list[Claimed]) -> list[Result]:
    return list(await asyncio.gather(*map(courier.send, claims)))
