"""Advances a task by one step, phase by phase, each written down before and after.

`advance` may be called by any worker at any time, also twice and after a crash: the claim lets one in, and the
step's `phase` says where to go on. Every way out either settles the step, or leaves the task waiting, paused
or ended, and says so in the trace.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket

from django.conf import settings
from django.db import DatabaseError

from agentdesk.database.base import repeating
from workspaces.actions import leases, steps
from workspaces.actions.errors import FenceLost
from workspaces.actions.workspaces import hold_workspace
from workspaces.domain.incidents import IncidentKind
from workspaces.domain.states import EscalationKind, StepPhase, TaskStatus, WaitingFor
from workspaces.domain.text import clip
from workspaces.engine import nodes
from workspaces.engine.act import Actor
from workspaces.engine.disk import Disk
from workspaces.engine.gate import judge_reply
from workspaces.engine.intake import bring_in
from workspaces.engine.keeper import Keeper, Orders
from workspaces.engine.patience import when_back
from workspaces.engine.run import Ended, HandedOver, Run
from workspaces.engine.think import think
from workspaces.engine.tool_servers import look_at_servers
from workspaces.models import ModelCall, Step, Task
from workspaces.queries.database import database_now, is_away
from workspaces.queries.history import NO_SANDBOX, waits_since_checkpoint
from workspaces.sandboxes.base import SandboxError, SandboxUnavailable
from workspaces.wire.driving import CallInterrupted

logger = logging.getLogger(__name__)

WORKER = f"{socket.gethostname()}:{os.getpid()}"
NO_ROOM = "There is no room left where disks and snapshots lie ({error}). Make room in {root}, then go on."
WORKSPACE_RECHECK_S = 600.0  # whoever frees it wakes the next one; this is for what nobody foresaw
SANDBOX_WAITS = 5  # 5, 10, 20, 40, 80 s

_keepers: dict[int, Keeper] = {}


class NotYet(Exception):  # a way out, not a fault
    """The task is due, and has to be tried again in a while."""


def keeper() -> Keeper:
    """This process's keeper; a forked child gets its own."""
    return _keepers.setdefault(os.getpid(), Keeper(settings.LEASE_S, room=settings.WORKER_CONCURRENCY * 7 // 8))


def go_on(task_id: int) -> None:
    """Run the task's steps, one claim each, for as long as this process has threads to spare; then call for the next.

    A call costs a broker several messages and this process as much work as a third of a step. With threads to spare
    nobody waits for this one; without, every step takes its turn in the queue, so that no task holds a thread.
    """
    while advance(task_id):
        if not keeper().has_room():
            leases.call(task_id)
            return


@repeating()
def advance(task_id: int) -> bool:
    """Run one step of the task, if it is due and free; whether the next one is due.

    Never raises for what is the task's own trouble. After trouble the next one is left to the scheduler, seconds
    later: what has just failed would fail again.
    """
    claim: leases.Claim | None = None
    try:
        if keeper().draining:
            leases.call(task_id)  # for another worker
            return False
        claim = leases.claim(task_id, worker=WORKER, lease_s=settings.LEASE_S)
        return claim is not None and _hold(claim)
    except Exception as error:
        if not is_away(error):
            raise
        logger.warning("task %s goes on later, the database is away: %s", task_id, error)
        if claim is not None:
            _release_when_back(claim)
        return False


def _release_when_back(claim: leases.Claim) -> None:
    """The scheduler then calls again, from the last finished phase on. Without this only when the lease has run out."""
    try:
        when_back(lambda: leases.release(claim.task_id, claim.fence), for_s=settings.LEASE_S)
    except DatabaseError as error:
        logger.warning("the lease on task %s is left to run out: %s", claim.task_id, error)


def _hold(claim: leases.Claim) -> bool:
    """One step under a lease. Raises DatabaseError when the database is away, and releases nothing then."""
    task_id = claim.task_id
    in_trouble, handed_over = True, False
    with keeper().holding(task_id, claim.fence) as orders:
        try:
            _advance(claim, orders)
            in_trouble = False
        except Ended:
            in_trouble = False
        except HandedOver:
            in_trouble, handed_over = False, True
        except NotYet as why:
            logger.info("task %s: %s", task_id, why)
        except FenceLost as lost:
            logger.info("%s", lost)
            return False
        except SandboxUnavailable as error:
            _try_again_later(claim, error)
        except SandboxError as error:
            _ask(claim, EscalationKind.SANDBOX, f"{error} {error.hint}".strip())
        except Exception as error:
            if is_away(error):
                raise
            logger.exception("task %s", task_id)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                words = NO_ROOM.format(root=settings.SANDBOX_ROOT, error=error)
                _ask(claim, EscalationKind.SANDBOX, words, failure=(IncidentKind.LOST_WORK, "no_room"))
            else:
                _ask(claim, EscalationKind.INTERNAL, f"agentdesk failed: {type(error).__name__}: {error}")
    due = leases.release(task_id, claim.fence)
    if due and handed_over:
        leases.call(task_id)
    return due and not in_trouble and not handed_over


def _try_again_later(claim: leases.Claim, error: SandboxUnavailable) -> None:
    """An engine that restarts is back in a while; one that stays away is a person's matter."""
    waits = waits_since_checkpoint(claim.task_id)
    runs = Task.objects.filter(pk=claim.task_id, status=TaskStatus.RUNNING.value).exists()
    if waits >= SANDBOX_WAITS or not runs:  # what is paused, or is to be, cannot wait: it says what is wrong
        _ask(claim, EscalationKind.SANDBOX, f"{error} {error.hint}".strip())
        return
    try:
        steps.wait_until(claim.task_id, claim.fence, WaitingFor.TIMER, f"{NO_SANDBOX}: {error}", 5.0 * 2**waits)
    except FenceLost as lost:
        logger.info("%s", lost)


def _ask(
    claim: leases.Claim, kind: EscalationKind, question: str, *, failure: tuple[IncidentKind, str] | None = None
) -> None:
    try:
        steps.escalate(claim.task_id, claim.fence, kind, clip(question, 2_000), failure=failure)
    except FenceLost as lost:
        logger.info("%s", lost)


def _advance(claim: leases.Claim, orders: Orders) -> None:
    task = Task.objects.select_related("workspace", "profile_version__profile", "branch").get(pk=claim.task_id)
    run = Run(task, claim.fence, orders)
    nodes.settle(run)
    disk = Disk(run)
    run.obey_at_boundary(disk)
    commanded = task.workspace.command_id is not None
    if task.status == TaskStatus.PAUSED.value:
        if commanded:
            raise NotYet("its files are put back when the operator's command has ended")
        disk.end_leftovers()
        disk.put_back()
        return
    goes_on = task.status == TaskStatus.RUNNING.value and not claim.previous_owner
    if not goes_on and not steps.begin_running(
        task.pk, claim.fence, worker=WORKER, previous_owner=claim.previous_owner
    ):
        return
    held = _holds(task)
    if commanded or not held:
        holder = f"task {task.workspace.held_by_id}" if task.workspace.held_by_id else "another task"
        steps.wait_until(
            task.pk,
            claim.fence,
            WaitingFor.WORKSPACE,
            "an operator's command runs in this workspace" if commanded else f"{holder} works in this workspace",
            WORKSPACE_RECHECK_S,
        )
        return
    disk.end_leftovers()
    disk.put_back()
    bring_in(run, disk)
    look_at_servers(run, disk)
    disk.first_checkpoint()
    _step(run, disk)


def _holds(task: Task) -> bool:
    """Whether the task is the only writer of the disk, from now on if it was not yet."""
    if task.workspace.held_by_id == task.pk:
        return True
    if not hold_workspace(task):
        return False
    task.workspace.refresh_from_db(fields=["held_by", "left_running"])  # read before it was let go of
    return True


def _open_step(run: Run) -> Step:
    """The step that is not settled, or the next one, which is stored with its first model call."""
    last = Step.objects.filter(branch_id=run.task.current_branch_id).order_by("-number").first()
    if last is not None and last.phase != StepPhase.SETTLED.value:
        return last
    number = last.number + 1 if last is not None else run.branch.first_step
    if number > run.task.max_steps:
        steps.escalate(
            run.task.pk,
            run.fence,
            EscalationKind.LIMIT,
            f"The limit of {run.task.max_steps} steps is reached. Raise it to go on.",
        )
        raise Ended
    deadline = run.task.deadline
    if deadline is not None and deadline <= database_now():
        steps.escalate(
            run.task.pk,
            run.fence,
            EscalationKind.DEADLINE,
            f"The deadline has passed: {deadline:%Y-%m-%d %H:%M} UTC. Give it more time to go on.",
        )
        raise Ended
    return Step(task=run.task, branch=run.branch, number=number)


def _step(run: Run, disk: Disk) -> None:
    step, reply = _open_step(run), None
    if step.phase == StepPhase.CONTEXT.value:
        run.obey(disk)
        reply = think(run, step, disk)
    with contextlib.suppress(CallInterrupted):  # of a check of last words: what it was is recorded
        _judge_and_act(run, step, disk, reply)
    run.obey(disk)  # a pause at the boundary is obeyed where the next advance begins


def _judge_and_act(run: Run, step: Step, disk: Disk, reply: ModelCall | None) -> None:
    if step.phase == StepPhase.REPLIED.value:
        run.obey(disk)
        judge_reply(run, step, reply)
    if step.phase == StepPhase.JUDGED.value:
        run.obey(disk)
        Actor(run, disk, step).act_and_settle()
