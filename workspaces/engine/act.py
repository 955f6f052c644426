"""Act and settle: runs the allowed calls in order, each with its intent before and its result after."""

from __future__ import annotations

import logging

from django.db import connection

from workspaces.actions import calls as call_actions
from workspaces.actions import checkpoints, steps
from workspaces.actions.errors import Refused
from workspaces.actions.ledger import Turn
from workspaces.actions.streams import OutputStream
from workspaces.domain.effects import Effect
from workspaces.domain.policy import name_result
from workspaces.domain.results import ResultClass
from workspaces.domain.states import CallStatus, EscalationKind, EscalationStatus
from workspaces.engine import detect
from workspaces.engine.connections import record_connections
from workspaces.engine.disk import Disk, call_key
from workspaces.engine.notebook import Notebook
from workspaces.engine.patience import patiently
from workspaces.engine.run import Ended, Run
from workspaces.engine.tool_servers import Watcher
from workspaces.models import Escalation, Snapshot, Step, ToolCall
from workspaces.queries.profiles import policy_of
from workspaces.sandboxes.base import DiskFull, ExecInterrupted, SandboxGone
from workspaces.tools.base import OutcomeUnknown, ToolContext, ToolResult
from workspaces.tools.mcp import McpTool

logger = logging.getLogger(__name__)

FINISH = "finish"
MOST_ATTEMPTS = 3
ENDED_EACH_TIME = (
    "The sandbox ended while this ran, {times} times, so it is not run again. It may be what ends the sandbox: killing "
    "every process does. The files are as they were before the call."
)
DONE = (CallStatus.DONE.value, CallStatus.ABANDONED.value)


class Actor:
    def __init__(self, run: Run, disk: Disk, step: Step) -> None:
        self.run = run
        self.disk = disk
        self.step = step

    def act_and_settle(self) -> None:
        """Phases act and settle. Raises Ended when the task waits, is paused, or ends."""
        calls = list(ToolCall.objects.filter(step=self.step).order_by("position"))
        for call in calls:
            call.step = self.step
        self._act(calls)
        self._settle(calls)

    def _act(self, calls: list[ToolCall]) -> None:
        newly_held = []
        for call in calls:
            if call.status == CallStatus.RUNNING.value:
                self._recover(call)
            elif call.status == CallStatus.HELD.value:
                call.refresh_from_db()  # it may have been answered while an earlier call ran
            if call.status == CallStatus.HELD.value:
                if not self._is_asked(call):
                    newly_held.append(call)
            elif call.status == CallStatus.APPROVED.value:
                failed = next(
                    (earlier for earlier in calls if earlier.position < call.position and _went_wrong(earlier)), None
                )
                if call.name == FINISH and failed is not None:
                    self._not_finished(call, failed)
                elif call.name == FINISH and self._claims_too_much(call):
                    pass  # held back, and told why
                else:
                    self._run_one(call)
                self.run.obey(self.disk)
        if any(call.status not in DONE for call in calls):
            self._wait(newly_held)
            raise Ended

    def _settle(self, calls: list[ToolCall]) -> None:
        """Detect, and the checkpoint; then the task ends, waits, or the next step follows."""
        run = self.run
        record_connections(run, self.disk, step=self.step.number)
        snapshot, fresh = self.disk.saved()
        finish = next((call for call in calls if call.control == "finish"), None)
        goes_on = checkpoints.settle_step(
            run.task.pk,
            run.fence,
            self.step,
            snapshot=snapshot,
            fresh=fresh,
            result=finish.result if finish else None,
            detected=detect.seen(run, self.step, calls, disk=snapshot.ref),
        )
        if not goes_on:
            raise Ended

    def _claims_too_much(self, call: ToolCall) -> bool:
        found = detect.claims_to_hold(self.run, self.step, detect.summary_of(call))
        return bool(found) and steps.hold_back(self.run.task.pk, self.run.fence, self.step, found, call)

    def _not_finished(self, call: ToolCall, failed: ToolCall) -> None:
        """The end was written before the model could read what went wrong in the same reply."""
        call_actions.answer_call(
            self.run.task.pk,
            self.run.fence,
            call,
            f"The task is not finished: {failed.name} in the same reply went wrong. Read its result, then go on.",
            ResultClass.ERROR,
        )

    def _is_asked(self, call: ToolCall) -> bool:
        return Escalation.objects.filter(tool_call=call, status=EscalationStatus.OPEN.value).exists()

    def _wait(self, newly_held: list[ToolCall]) -> None:
        """Held calls are asked about, with a checkpoint that holds them as pending."""
        unknown = [call for call in newly_held if call.attempt > 0]
        for call in unknown:
            self._ask_what_happened(call)
        asked = [call for call in newly_held if call.attempt == 0]
        snapshot, fresh = self.disk.saved()
        steps.wait_for_answers(self.run.task.pk, self.run.fence, self.step, snapshot=snapshot, fresh=fresh, asked=asked)

    def _run_one(self, call: ToolCall) -> None:
        if self.run.tool(call.name).spec.needs_sandbox:
            self.disk.awake()  # before the intent: a sandbox that does not start leaves no call in doubt
        before: Snapshot | None = None
        if Effect(call.effect).touches_disk:
            before, _ = self.disk.saved()
            self.disk.changed()
        try:
            turn = self._start(call, before)
        except Refused as refused:
            logger.info("call %s was not started: %s", call.pk, refused)
            self._ask_again(call, str(refused))
            return
        if turn is Turn.MINE:
            self._finish(call)
        elif turn is Turn.ELSEWHERE:
            raise Ended
        elif turn is Turn.UNKNOWN:
            self._ask_about_another(call)

    def _start(self, call: ToolCall, before: Snapshot | None) -> Turn:
        """The intent. Known to be written also when the database went away over it: nothing is in doubt then."""
        attempts = call.attempt
        turns: list[Turn] = []

        def start() -> None:
            call.attempt = attempts
            turns.append(
                call_actions.start_call(
                    self.run.task.pk, self.run.fence, call, key=call_key(call), snapshot_before=before
                )
            )

        def written() -> bool:
            found = ToolCall.objects.values("status", "attempt").get(pk=call.pk)
            if found["status"] == CallStatus.DONE.value:
                turns.append(Turn.DONE)
            elif (found["status"], found["attempt"]) == (CallStatus.RUNNING.value, attempts + 1):
                turns.append(Turn.MINE)
            return bool(turns)

        patiently(start, written=written)
        return turns[-1]

    def _ask_again(self, call: ToolCall, why: str) -> None:
        """An approval that is gone is asked for once more."""
        steps.escalate_call(
            self.run.task.pk,
            self.run.fence,
            call,
            EscalationKind.HELD_CALL,
            f"May the agent call {call.name}? The earlier approval no longer holds: {why}.",
        )

    def _ask_about_another(self, call: ToolCall) -> None:
        """Another branch or fork began this very effect, and how that ended nobody knows."""
        steps.escalate_call(
            self.run.task.pk,
            self.run.fence,
            call,
            EscalationKind.UNKNOWN_OUTCOME,
            f"{call.name} was not run: it was begun before, with the same arguments, on another branch or in a fork, "
            "and its result was lost. It may have happened or not: look outside, then say.",
        )

    def _finish(self, call: ToolCall) -> None:
        """Run a call whose intent is written (or wait for the command that it already started)."""
        tool = self.run.tool(call.name)
        if isinstance(tool, McpTool):
            tool.watch = Watcher(self.run, self.step)
        output = OutputStream(self.run.task.pk, call.pk)
        notebook = Notebook(self.run, self.step)
        sandbox = self.disk.awake() if tool.spec.needs_sandbox else self.disk.sandbox
        connection.close()  # nothing is held while a command runs
        try:
            result = tool.run(
                call.arguments or {},
                ToolContext(
                    key=call_key(call),
                    idempotency_key=call.effect_key,
                    sandbox=sandbox,
                    notes=notebook,
                    on_output=output,
                    interrupt=self.run.orders.interrupt,
                ),
            )
        except ExecInterrupted:
            self.run.obey(self.disk)
            raise
        except SandboxGone:
            self._outcome_unknown(call)
            return
        except OutcomeUnknown as unknown:
            if Effect(call.effect).leaves_sandbox:
                self._ask_what_happened(call, known=str(unknown))
                return
            result = unknown.otherwise
        except DiskFull as full:  # the model can delete what it no longer needs
            result = ToolResult(f"{full}. {full.hint}".strip(), ResultClass.ERROR)
        self._store(call, result)
        record_connections(self.run, self.disk, step=self.step.number)

    def _store(self, call: ToolCall, result: ToolResult) -> None:
        if result.control == "ask_operator":
            steps.escalate_call(self.run.task.pk, self.run.fence, call, EscalationKind.QUESTION, result.content)
            call.status = CallStatus.HELD.value
            return
        result_class, content, data = ResultClass(result.result_class), result.content, dict(result.data)
        if not result.control:
            policy = policy_of(self.run.version)
            result_class, content, rule = name_result(policy, call.name, Effect(call.effect), result_class, content)
            data |= {"rule": rule.scope.title} if rule else {}
        patiently(
            lambda: call_actions.finish_call(
                self.run.task.pk,
                self.run.fence,
                call,
                content=content,
                result_class=result_class,
                data=data,
                control=result.control,
            ),
            written=lambda: ToolCall.objects.filter(pk=call.pk, status=CallStatus.DONE.value).exists(),
        )

    def _recover(self, call: ToolCall) -> None:
        """A call with an intent and no result: its worker died, or a pause froze it."""
        if self.disk.sandbox.state() in ("running", "frozen") and self.disk.sandbox.is_known(call_key(call)):
            self.disk.changed()
            self._finish(call)
            return
        if self.disk.sandbox.state() in ("running", "frozen"):
            self.disk.sandbox.kill(call_key(call))  # a program that was spoken to, and heeds no end
        self._outcome_unknown(call)

    def _outcome_unknown(self, call: ToolCall) -> None:
        """Nobody can tell whether it ran. Undone and repeated where that is safe; else a person decides.

        Not without end: what ends its own sandbox (`kill -9 -1`) would do so again each time.
        """
        effect = Effect(call.effect)
        if effect.leaves_sandbox:
            self._ask_what_happened(call)
            return
        what = "run again: it only reads"
        if effect is Effect.WORKSPACE:
            assert call.snapshot_before is not None
            self.disk.restore(
                call.snapshot_before,
                why=f"before {call.name} is run again: its outcome is unknown",
                step=self.step,
            )
            what = "the files were put back to before the call, then it was run again"
        if call.attempt >= MOST_ATTEMPTS:
            self._store(call, ToolResult(ENDED_EACH_TIME.format(times=call.attempt), ResultClass.ERROR))
            return
        call_actions.retry_call(self.run.task.pk, self.run.fence, call, what=what)
        self._run_one(call)

    def _ask_what_happened(self, call: ToolCall, known: str = "") -> None:
        known = known or f"{call.name} was started and its result was lost."
        steps.escalate_call(
            self.run.task.pk,
            self.run.fence,
            call,
            EscalationKind.UNKNOWN_OUTCOME,
            f"{known} It may have happened or not: look outside, then say.",
        )
        call.status = CallStatus.HELD.value


def _went_wrong(call: ToolCall) -> bool:
    """It was not run, or what it gave is no success. An empty result may be what was wanted."""
    fine = (ResultClass.OK.value, ResultClass.EMPTY.value, ResultClass.TRUNCATED.value)
    return call.status in DONE and call.result_class not in fine
