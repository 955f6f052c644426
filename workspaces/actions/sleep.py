"""Whether a workspace sleeps: the only writer of its `state` and of what belongs to it.

Each move is one conditional UPDATE, with the database's own time. The two moves that take long (waking, falling
asleep) are claims with a lease and a fence: a worker may die in the middle, its claim then ends by itself, and what it
writes late changes nothing. What the worker does in between is engine/lifecycle.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from workspaces import dispatch
from workspaces.domain.events import EventKind
from workspaces.domain.states import CallStatus, TaskStatus, WaitingFor, WorkspaceState
from workspaces.models import AuditEntry, OperatorCommand, Snapshot, Task, ToolCall, User, Workspace
from workspaces.sandboxes.base import SnapshotInfo

from . import sandbox_signals
from .checkpoints import store_snapshot
from .clock import database_now
from .errors import Refused
from .leases import CLAIMABLE
from .pen import writing
from .waits import wake_waiting

S = WorkspaceState
BATCH = 100
AT_WORK = timedelta(minutes=10)
MOST_IDLE_S = 30 * 86_400
_TURNSTILE = 7_411_903  # the advisory lock under which it is decided who may wake

_UNUSED = f"""
    place.command_id IS NULL
AND NOT EXISTS (SELECT 1 FROM workspaces_task AS task
                 WHERE task.workspace_id = place.id
                   AND (task.status IN ('{TaskStatus.QUEUED}', '{TaskStatus.RUNNING}', '{TaskStatus.PAUSING}')
                        OR (task.status = '{TaskStatus.PAUSED}' AND task.disk_restore_id IS NOT NULL)
                        OR task.lease_until > statement_timestamp()
                        OR task.status_since > statement_timestamp() - idle.timeout))
AND NOT EXISTS (SELECT 1 FROM workspaces_toolcall AS call
                  JOIN workspaces_task AS task ON task.id = call.task_id
                 WHERE task.workspace_id = place.id AND call.status = '{CallStatus.RUNNING}')
"""  # noqa: S608 - the domain's own words
_IDLE = f"""
  FROM workspaces_workspace AS place,
       LATERAL (SELECT make_interval(secs => coalesce(place.idle_timeout_s, %(site_s)s)) AS timeout) AS idle
 WHERE place.state = '{S.AWAKE}' AND place.wake_wanted_at IS NULL AND idle.timeout > interval '0'
   AND place.used_at < statement_timestamp() - idle.timeout AND {_UNUSED}
"""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave to wake (`fence`), or (`fence` is None) how many wake before it. Neither: it is awake already."""

    fence: int | None = None
    ahead: int = 0
    awake: bool = False


@dataclass(frozen=True, slots=True)
class Nap:
    """Leave to put a workspace to sleep. `used_at` (as text): it must not have been used since."""

    workspace_id: int
    fence: int
    used_at: str
    idle_s: float


def use_workspace(workspace_id: int) -> WorkspaceState:
    """Somebody is about to touch its disk or sandbox: its idle time begins anew. Returns its state."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workspaces_workspace SET used_at = statement_timestamp(), slept_snapshot_id = NULL"
            " WHERE id = %s RETURNING state",
            [workspace_id],
        )
        row = cursor.fetchone()
    if row is None:
        raise Workspace.DoesNotExist(f"there is no workspace {workspace_id}")
    return WorkspaceState(row[0])


# --- waking


def want_awake(workspace_id: int) -> WorkspaceState:
    """Put it into the queue of those that are to wake, unless it is awake; some worker does it. Returns its state."""
    with transaction.atomic():
        Workspace.objects.filter(pk=workspace_id).exclude(state=S.AWAKE.value).update(
            wake_wanted_at=Coalesce("wake_wanted_at", Now())
        )
        state = use_workspace(workspace_id)
        if state is not S.AWAKE:
            dispatch.wake_workspace(workspace_id)
    return state


def wake_by_hand(workspace: Workspace, *, actor: User) -> WorkspaceState:
    """A person wants it awake before any task does."""
    with transaction.atomic():
        AuditEntry.objects.create(actor=actor, action="workspace.wake", workspace=workspace, data={}, at=database_now())
        return want_awake(workspace.pk)


def set_idle_timeout(workspace: Workspace, seconds: int | None, *, actor: User) -> None:
    """After how many seconds without work it sleeps; 0: never, None: as the site says. Raises Refused."""
    if seconds is not None and not 0 <= seconds <= MOST_IDLE_S:
        raise Refused(f"A workspace sleeps after at most {MOST_IDLE_S // 86_400} days, or never (0).")
    with transaction.atomic():
        Workspace.objects.filter(pk=workspace.pk).update(idle_timeout_s=seconds)
        AuditEntry.objects.create(
            actor=actor,
            action="workspace.idle_timeout",
            workspace=workspace,
            data={"seconds": "the site's" if seconds is None else seconds},
            at=database_now(),
        )


def claim_wake(workspace_id: int, *, lease_s: float, at_once: int, gone: bool = False) -> Ticket:
    """Take it up to be woken, if fewer than `at_once` wake now and nobody has waited longer.

    Otherwise it stands in the queue from now on. `gone`: it is said to be awake, but its sandbox does not run.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_TURNSTILE])
        mine = Workspace.objects.filter(pk=workspace_id)
        place = mine.select_for_update(no_key=True, of=("self",)).annotate(now=Now()).get()
        if place.state != S.AWAKE.value or gone:
            ticket = _take_or_queue(place, place.now, lease_s, at_once)
        else:
            mine.update(wake_wanted_at=None)
            ticket = Ticket(awake=True)
    if ticket.awake:
        _call_holder(workspace_id)
    return ticket


def _take_or_queue(place: Workspace, now: datetime, lease_s: float, at_once: int) -> Ticket:
    claimed = place.state_until is not None and place.state_until >= now
    since = place.wake_wanted_at or now
    live = Q(state=S.WAKING.value, state_until__gte=Now())
    ahead = Workspace.objects.exclude(pk=place.pk).filter(live | Q(wake_wanted_at__lt=since)).count()
    mine = Workspace.objects.filter(pk=place.pk)
    if claimed or ahead >= at_once:
        mine.update(wake_wanted_at=Coalesce("wake_wanted_at", Now()))
        mine.filter(state=S.AWAKE.value).update(state=S.ASLEEP.value, state_since=Now())  # its sandbox is gone
        return Ticket(ahead=ahead)
    mine.update(
        state=S.WAKING.value,
        state_fence=place.state_fence + 1,
        state_since=Now(),
        state_until=Now() + timedelta(seconds=lease_s),
        used_at=Now(),
        wake_wanted_at=None,
        slept_snapshot=None,
    )
    return Ticket(fence=place.state_fence + 1)


def renew_claim(workspace_id: int, fence: int, *, lease_s: float) -> bool:
    """Whoever wakes it or puts it to sleep is still at it. False when the claim had ended."""
    claimed = Workspace.objects.filter(pk=workspace_id, state_fence=fence, state_until__isnull=False)
    return claimed.update(state_until=Now() + timedelta(seconds=lease_s)) == 1


def woke(workspace_id: int, fence: int, *, at_once: int) -> bool:
    """waking → awake. Its holder goes on, and the next in the queue are called. False when the claim had ended."""
    done = _settle(workspace_id, fence, S.WAKING, S.AWAKE, tell=partial(sandbox_signals.woke, workspace_id))
    call_next(at_once)
    return done


def wake_failed(workspace_id: int, fence: int, *, at_once: int, why: str = "") -> bool:
    """waking → asleep, out of the queue. Its holder tries by itself and then says what is wrong.

    `why`: what the sandbox's engine said; "" where only the worker was interrupted.
    """
    tell = partial(sandbox_signals.does_not_wake, workspace_id, why) if why else None
    done = _settle(workspace_id, fence, S.WAKING, S.ASLEEP, tell=tell)
    call_next(at_once)
    return done


def _settle(
    workspace_id: int,
    fence: int,
    old: WorkspaceState,
    new: WorkspaceState,
    *,
    tell: Callable[[], None] | None = None,
) -> bool:
    """A claim is over: 1. the move, and what it signals; 2. after it, the task that holds the workspace is called, if
    it waits for this: no task is locked while the workspace is.
    """
    with transaction.atomic():
        changed = Workspace.objects.filter(pk=workspace_id, state=old.value, state_fence=fence).update(
            state=new.value, state_since=Now(), state_until=None, used_at=Now(), wake_wanted_at=None
        )
        if changed and tell is not None:
            tell()
    if changed:
        _call_holder(workspace_id)
    return changed == 1


def _call_holder(workspace_id: int) -> None:
    holder = Workspace.objects.filter(pk=workspace_id).values_list("held_by", flat=True).first()
    if holder is not None:
        wake_waiting(holder, waiting_for=WaitingFor.WORKSPACE.value, why="the workspace has woken")


def call_next(at_once: int) -> int:
    """Call for those that have waited longest, as many as may wake now. Returns how many."""
    busy = Workspace.objects.filter(state=S.WAKING.value, state_until__gte=Now()).count()
    ids = list(
        Workspace.objects.filter(wake_wanted_at__isnull=False)
        .order_by("wake_wanted_at")
        .values_list("pk", flat=True)[: max(0, at_once - busy)]
    )
    for workspace_id in ids:
        dispatch.wake_workspace(workspace_id)
    return len(ids)


# --- falling asleep


def idle_workspaces(site_timeout_s: int) -> list[int]:
    """Those that nothing has wanted for their idle timeout (the site's, unless they have their own)."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT place.id {_IDLE} ORDER BY place.used_at LIMIT {BATCH}", {"site_s": site_timeout_s})
        return [row[0] for row in cursor.fetchall()]


def call_idle(site_timeout_s: int) -> int:
    """Have workers put to sleep what is idle. Returns how many were called for."""
    ids = idle_workspaces(site_timeout_s)
    for workspace_id in ids:
        dispatch.sleep_workspace(workspace_id)
    return len(ids)


def claim_sleep(workspace_id: int, *, lease_s: float, site_timeout_s: int) -> Nap | None:
    """awake → falling asleep, by one conditional UPDATE; None when it is not (or no longer) idle.

    From here until `slept` nobody can wake it; who wants to, waits in the queue.
    """
    statement = f"""
        UPDATE workspaces_workspace AS changed
           SET state = %(state)s, state_fence = changed.state_fence + 1, state_since = statement_timestamp(),
               state_until = statement_timestamp() + make_interval(secs => %(lease_s)s)
         WHERE changed.id = %(id)s AND changed.state = '{S.AWAKE}'
           AND changed.id IN (SELECT place.id {_IDLE} AND place.id = %(id)s)
        RETURNING changed.state_fence, changed.used_at::text,
                  extract(epoch FROM statement_timestamp() - changed.used_at)::float8
    """  # noqa: S608
    values: dict[str, Any] = {
        "state": S.FALLING_ASLEEP.value,
        "lease_s": lease_s,
        "id": workspace_id,
        "site_s": site_timeout_s,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    return Nap(workspace_id, *row) if row else None


def slept(nap: Nap, info: SnapshotInfo) -> bool:
    """falling asleep → asleep, with the snapshot of its disk. False when the claim had ended.

    1. the snapshot is kept in any case, or nobody would ever free its bytes; 2. the move; a snapshot that may be older
    than the disk (somebody has used it meanwhile) is not said to be what it holds; 3. the holder's trace tells it;
    4. whoever has come meanwhile is called.
    """
    place = Workspace(pk=nap.workspace_id)
    with transaction.atomic(), connection.cursor() as cursor:
        snapshot = store_snapshot(place, info)
        cursor.execute(
            "UPDATE workspaces_workspace SET state = %s, state_since = statement_timestamp(), state_until = NULL,"
            " slept_snapshot_id = CASE WHEN used_at = %s::timestamptz THEN %s::bigint END"
            " WHERE id = %s AND state = %s AND state_fence = %s RETURNING held_by_id, wake_wanted_at IS NOT NULL",
            [S.ASLEEP.value, nap.used_at, snapshot.pk, nap.workspace_id, S.FALLING_ASLEEP.value, nap.fence],
        )
        row = cursor.fetchone()
        if row is not None:
            sandbox_signals.slept(nap.workspace_id)
    if row is None:
        return False
    holder, wanted = row
    if holder is not None:
        with writing(holder) as pen:
            facts: dict[str, Any] = {
                "snapshot": info.ref,
                "added_bytes": info.added_bytes,
                "idle_s": round(nap.idle_s, 1),
            }
            pen.event(EventKind.WORKSPACE_SLEPT, **facts)
    if wanted:
        dispatch.wake_workspace(nap.workspace_id)
    return True


def stay_awake(nap: Nap, why: str) -> bool:
    """falling asleep → awake: the sandbox could not be ended or the disk not be saved. Whoever waits tries it."""
    tell = partial(sandbox_signals.does_not_sleep, nap.workspace_id, why)
    return _settle(nap.workspace_id, nap.fence, S.FALLING_ASLEEP, S.AWAKE, tell=tell)


# --- what an ended task left running


def call_left() -> int:
    """Have workers end what ended tasks left in workspaces that are free. Returns how many were called for."""
    ids = list(_left().values_list("pk", flat=True)[:BATCH])
    for workspace_id in ids:
        dispatch.end_leftovers(workspace_id)
    return len(ids)


def claim_leftovers(workspace_id: int, *, lease_s: float) -> int | None:
    """awake → falling asleep, without waiting for its idle time. The fence; None when it is not (or no longer) so."""
    return _claim_end(_left(), workspace_id, lease_s)


def claim_stray(workspace_id: int, *, lease_s: float) -> int | None:
    """asleep → falling asleep: its sandbox runs all the same, and nobody can wake it before it has ended. As above."""
    return _claim_end(_unwanted(), workspace_id, lease_s)


def _claim_end(due: QuerySet[Workspace], workspace_id: int, lease_s: float) -> int | None:
    fence = Workspace.objects.filter(pk=workspace_id).values_list("state_fence", flat=True).get() + 1
    claimed = due.filter(pk=workspace_id, state_fence=fence - 1)
    until = Now() + timedelta(seconds=lease_s)
    changed = claimed.update(state=S.FALLING_ASLEEP.value, state_fence=fence, state_since=Now(), state_until=until)
    return fence if changed else None


def leftovers_ended(workspace_id: int, fence: int) -> bool:
    """falling asleep → asleep, with nothing left running. Whoever has come meanwhile is called."""
    with transaction.atomic():
        mine = Workspace.objects.filter(pk=workspace_id, state=S.FALLING_ASLEEP.value, state_fence=fence)
        if not mine.update(state=S.ASLEEP.value, state_since=Now(), state_until=None, left_running=False):
            return False
        if Workspace.objects.filter(pk=workspace_id, wake_wanted_at__isnull=False).exists():
            dispatch.wake_workspace(workspace_id)
    return True


def leftovers_stay(workspace_id: int, fence: int) -> bool:
    """falling asleep → awake: they could not be ended, and will be later."""
    return _settle(workspace_id, fence, S.FALLING_ASLEEP, S.AWAKE)


def _left() -> QuerySet[Workspace]:
    """Not where an operator is at work in a terminal: that ends when a task comes, or when it falls asleep."""
    lately = OperatorCommand.objects.filter(workspace=OuterRef("pk"), finished_at__gt=Now() - AT_WORK)
    free = Workspace.objects.filter(state=S.AWAKE.value, held_by=None, command=None, left_running=True)
    return free.exclude(Exists(lately))


def stopped(workspace_id: int) -> None:
    """Its sandbox was ended without a snapshot, because the installation stops and no worker runs any more."""
    _stop(Workspace.objects.filter(pk=workspace_id).exclude(state=S.ASLEEP.value))


def all_stopped(disks: Mapping[int, Snapshot]) -> None:
    """The installation was made anew: no sandbox runs, nobody waits. `disks`: what was put back, by workspace."""
    _stop(Workspace.objects.all(), wake_wanted_at=None)
    for workspace_id, snapshot in disks.items():
        Workspace.objects.filter(pk=workspace_id).update(slept_snapshot=snapshot)


def _stop(places: QuerySet[Workspace], **more: Any) -> None:
    places.update(
        state=S.ASLEEP.value,
        state_since=Now(),
        state_until=None,
        state_fence=F("state_fence") + 1,
        slept_snapshot=None,
        left_running=False,
        **more,
    )


# --- claims whose worker died


def end_claims() -> int:
    """Claims whose lease ran out: what was to wake is in the queue again, what was to sleep is awake. How many."""
    over = Workspace.objects.filter(state_until__lt=Now())
    ended = over.filter(state=S.WAKING.value).update(
        state=S.ASLEEP.value, state_since=Now(), state_until=None, wake_wanted_at=Coalesce("wake_wanted_at", Now())
    )
    return ended + over.filter(state=S.FALLING_ASLEEP.value).update(
        state=S.AWAKE.value, state_since=Now(), state_until=None
    )


def strays(sandbox_keys: list[str]) -> list[int]:
    """Of the workspaces whose sandboxes run: those that are asleep, and nothing is in flight in them."""
    return list(_unwanted().filter(sandbox_key__in=sandbox_keys).values_list("pk", flat=True))


def _unwanted() -> QuerySet[Workspace]:
    busy = ToolCall.objects.filter(status=CallStatus.RUNNING.value).values("task__workspace")
    due = Task.objects.filter(CLAIMABLE).values("workspace")
    asleep = Workspace.objects.filter(state=S.ASLEEP.value, wake_wanted_at=None, command=None)
    return asleep.exclude(pk__in=busy).exclude(pk__in=due)
