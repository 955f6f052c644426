"""What a worker writes about a task and its steps between claim and settle. Calls: calls.py, model_calls.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.incidents import Finding, IncidentKind, Rung, Severity
from workspaces.domain.occurrences import single
from workspaces.domain.results import ResultClass
from workspaces.domain.states import (
    EscalationKind,
    PauseMode,
    StepPhase,
    TaskStatus,
    WaitingFor,
)
from workspaces.domain.text import clean_text, clip
from workspaces.models import Checkpoint, Escalation, Incident, Snapshot, Step, ToolCall

from . import question_signals
from .calls import hold_call, store_result
from .checkpoints import save_checkpoint
from .detections import Detected, answer, hold_end
from .escalations import ask_about_call, ask_to_approve, has_open, open_escalation, wait_for_operator
from .incidents import report, respond
from .pen import Pen, writing
from .tasks import end_task, release_pause, standing_latch

ANSWER_WITHIN = timedelta(days=7)


def begin_running(task_id: int, fence: int, *, worker: str, previous_owner: str) -> bool:
    """queued → running, or the take-over from a dead worker.

    False when a latch holds the task instead, or it was paused between the claim and now.
    """
    with writing(task_id, fence=fence) as pen:
        if previous_owner:
            pen.event(EventKind.TASK_TAKEN_OVER, from_worker=previous_owner, worker=worker)
        if pen.task.status == TaskStatus.QUEUED.value:
            # one that is just being released does not know of this task yet, and would leave it paused
            latch = standing_latch(pen.task, locked=True)
            if latch is not None:
                pen.set(latch=latch, pause_mode=latch.mode)
                pen.move(TaskStatus.PAUSED)
                pen.event(EventKind.TASK_PAUSED, mode=latch.mode, reason=latch.reason)
                return False
            pen.move(TaskStatus.RUNNING)
            pen.event(EventKind.TASK_STARTED, worker=worker)
            _withdraw_questions_of_the_task(pen)
        return pen.task.status in (TaskStatus.RUNNING.value, TaskStatus.PAUSING.value)


def _withdraw_questions_of_the_task(pen: Pen) -> None:
    """Questions that concern no call are moot once the task goes on: it tries again and asks again."""
    moot = Escalation.objects.filter(task=pen.task, status="open", tool_call=None)
    for escalation in moot:
        pen.event(EventKind.ESCALATION_WITHDRAWN, escalation=escalation.pk, why="the task goes on")
        question_signals.over(pen, escalation, "The task goes on.")
    moot.update(status="withdrawn")


def finish_pause(task_id: int, fence: int, *, frozen: bool) -> None:
    """pausing → paused: nothing runs any more."""
    with writing(task_id, fence=fence) as pen:
        if pen.task.status != TaskStatus.PAUSING.value:
            return
        pen.move(TaskStatus.PAUSED)
        if frozen:
            pen.event(EventKind.WORKSPACE_FROZEN)
        latch = pen.task.latch
        pen.event(
            EventKind.TASK_PAUSED,
            mode=pen.task.pause_mode or PauseMode.BOUNDARY.value,
            reason=latch.reason if latch else "",
        )
        if latch is not None and latch.released_at is not None and standing_latch(pen.task) is None:
            release_pause(pen, "the hold was released meanwhile")


def finish_task(task_id: int, fence: int, status: TaskStatus, text: str, *, detected: Detected | None = None) -> None:
    with writing(task_id, fence=fence) as pen:
        if detected is not None:
            answer(pen, detected, succeeded=True)
        end_task(pen, status, text)


def wait_until(task_id: int, fence: int, what: WaitingFor, reason: str, until_in_s: float) -> None:
    """Wait for quota, a workspace or time. A task that is pausing is left so: its pause comes first."""
    with writing(task_id, fence=fence) as pen:
        if pen.task.status == TaskStatus.RUNNING.value:
            pen.wait(what, reason, pen.now + timedelta(seconds=until_in_s))


def escalate(
    task_id: int,
    fence: int,
    kind: EscalationKind,
    question: str,
    *,
    incident: Incident | None = None,
    failure: tuple[IncidentKind, str] | None = None,
) -> None:
    """Ask about the task as a whole, and wait. A question that stands open already is not asked twice.

    `incident`: what was reported just before and is asked about; `failure`: kind and pattern of one that this is.
    """
    with writing(task_id, fence=fence) as pen:
        asked = {"task": pen.task, "tool_call": None, "status": "open", "kind": kind.value}
        if not Escalation.objects.filter(**asked, question=clean_text(question)).exists():
            deadline = pen.now + ANSWER_WITHIN
            escalation = open_escalation(
                pen, kind=kind, question=question, deadline=deadline, incident=incident, signals=False
            )
            if failure is not None:
                found = single(
                    failure[0],
                    Severity.ERROR,
                    failure[1],
                    clip(question, EXCERPT_CHARS),
                    seq=pen.task.last_seq,
                    step=pen.task.steps_taken or None,
                    what="the task could not go on",
                )
                _asked_already(pen, found, escalation)
            question_signals.asked(pen, escalation)
        if pen.task.status == TaskStatus.RUNNING.value:
            wait_for_operator(pen)


def escalate_call(task_id: int, fence: int, call: ToolCall, kind: EscalationKind, question: str) -> None:
    """Ask about one call, which is held meanwhile. An outcome that nobody knows is an incident as well."""
    with writing(task_id, fence=fence) as pen:
        hold_call(pen, call)  # also in the caller's hands
        escalation = ask_about_call(pen, call, kind, question, signals=False)
        if kind is EscalationKind.UNKNOWN_OUTCOME:
            lost = single(
                IncidentKind.UNKNOWN_OUTCOME,
                Severity.ERROR,
                "result_lost",
                question,
                seq=pen.task.last_seq,
                step=call.step.number,
                what=f"{call.name} was begun, and its result is not known",
                about=str(call.pk),
                tool_call=call.pk,
            )
            _asked_already(pen, lost, escalation)
        question_signals.asked(pen, escalation)


def _asked_already(pen: Pen, finding: Finding, escalation: Escalation) -> None:
    """An incident whose question is open: the one stands by the other."""
    incident = report(pen, finding).incident
    respond(pen, incident, Rung.ESCALATED, finding.words)
    escalation.incident = incident
    escalation.save(update_fields=["incident"])


def wait_for_answers(
    task_id: int, fence: int, step: Step, *, snapshot: Snapshot, fresh: bool, asked: list[ToolCall]
) -> None:
    """Ask to approve what is newly held, save a checkpoint with the pending calls, and wait.

    Not when everything was answered while the step's other calls ran: the task is then due.
    """
    with writing(task_id, fence=fence) as pen:
        for call in asked:
            ask_to_approve(pen, call)
        newest = Checkpoint.objects.filter(branch=pen.branch).order_by("-seq").first()
        saved_already = newest is not None and newest.step_id == step.pk and not fresh and not asked
        if not saved_already:
            save_checkpoint(pen, step=step, snapshot=snapshot, fresh=fresh)
        if pen.task.status == TaskStatus.RUNNING.value and has_open(pen):
            wait_for_operator(pen)


def first_checkpoint(task_id: int, fence: int, snapshot: Snapshot) -> None:
    """The state before step 1."""
    with writing(task_id, fence=fence) as pen:
        save_checkpoint(pen, step=None, snapshot=snapshot, fresh=True)


def disk_restored(
    task_id: int, fence: int, snapshot: Snapshot, *, why: str, duration_s: float, step: Step | None = None
) -> None:
    with writing(task_id, fence=fence) as pen:
        if pen.task.disk_restore_id == snapshot.pk:
            pen.set(disk_restore=None)
            _withdraw_questions_of_the_task(pen)
        pen.event(
            EventKind.WORKSPACE_RESTORED,
            step=step.number if step else None,
            snapshot=snapshot.ref,
            why=why,
            duration_s=round(duration_s, 4),
        )


def workspace_woke(task_id: int, fence: int, *, duration_s: float) -> None:
    with writing(task_id, fence=fence) as pen:
        pen.event(EventKind.WORKSPACE_WOKE, duration_s=round(duration_s, 4))


def intake_begins(task_id: int, fence: int, before: Snapshot) -> None:
    """The intent: until it is known that all came in, the disk has to be put back first (`disk_restore`)."""
    with writing(task_id, fence=fence) as pen:
        pen.set(disk_restore=before)


def intake_done(task_id: int, fence: int, reports: Sequence[dict[str, Any]]) -> None:
    """`reports`: what came in from each source, and what came in otherwise than it was."""
    with writing(task_id, fence=fence) as pen:
        pen.set(intake_done=True, disk_restore=None)
        for report in reports:
            pen.event(EventKind.INTAKE_DONE, **report)


def intake_failed(task_id: int, fence: int, *, message: str) -> None:
    """Nothing came in; a person decides."""
    with writing(task_id, fence=fence) as pen:
        pen.event(EventKind.INTAKE_FAILED, message=clip(message, EXCERPT_CHARS))
    escalate(task_id, fence, EscalationKind.INTAKE, message)


def correct_reply(task_id: int, fence: int, step: Step, *, problem: str, told: str) -> None:
    """The reply held no call: say so to the model. The step has nothing to act on."""
    with writing(task_id, fence=fence) as pen:
        _correct(pen, step, problem, told)


def _correct(pen: Pen, step: Step, problem: str, told: str) -> None:
    seq = pen.event(EventKind.REPLY_CORRECTED, step=step.number, problem=problem, told=clip(told, EXCERPT_CHARS))
    pen.message("user", told, seq=seq)
    step.phase = StepPhase.JUDGED.value
    pen.change(step, "phase")


def hold_back(task_id: int, fence: int, step: Step, findings: Sequence[Finding], call: ToolCall | None) -> bool:
    """The task's end claims what was not done: whether it is held back, and the model (or a person) told why.

    `call`: that which was to end it; None: the reply itself was the end.
    """
    with writing(task_id, fence=fence) as pen:
        told = hold_end(pen, findings)
        if not told:
            return False
        if call is not None:
            store_result(pen, call, told, ResultClass.ERROR)
        else:
            _correct(pen, step, "claim", told)
        return True


def note_correction(task_id: int, fence: int, step: Step, *, problem: str, told: str) -> None:
    """A call was found where it does not belong (a fenced block): recorded, and read."""
    with writing(task_id, fence=fence) as pen:
        pen.event(EventKind.REPLY_CORRECTED, step=step.number, problem=problem, told=clip(told, EXCERPT_CHARS))
