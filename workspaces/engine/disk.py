"""The workspace's sandbox and disk as a run sees them: awake when needed, snapshots taken when something changed."""

from __future__ import annotations

import time
from functools import cached_property

from workspaces.actions import steps
from workspaces.actions.checkpoints import store_snapshot
from workspaces.actions.sleep import use_workspace
from workspaces.actions.workspaces import leftovers_ended
from workspaces.domain.states import CallStatus, WaitingFor, WorkspaceState
from workspaces.engine import lifecycle
from workspaces.engine.boxes import sandbox_for
from workspaces.engine.run import Ended, Run
from workspaces.models import Checkpoint, Snapshot, Step, ToolCall, Workspace
from workspaces.queries.disks import touched_since
from workspaces.queries.history import latest_checkpoint
from workspaces.sandboxes.base import Sandbox

WAKE_RECHECK_S = 10.0  # whoever wakes it calls the task; this is for a worker that died in between


class Disk:
    """`saved` is the newest snapshot that is known to equal the disk, or None when something may have changed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._saved: Snapshot | None = None
        self._awake = False
        self._state = WorkspaceState.ASLEEP  # when the sandbox was first looked at

    @cached_property
    def _newest(self) -> Checkpoint | None:
        """The branch's newest checkpoint when this advance began."""
        return latest_checkpoint(self.run.task)

    @cached_property
    def sandbox(self) -> Sandbox:
        """Whoever looks at it is about to use the disk: the workspace does not fall asleep meanwhile."""
        self._state = use_workspace(self.run.task.workspace_id)
        return sandbox_for(self.run.task.workspace)

    def awake(self) -> Sandbox:
        """The sandbox, running or thawed. Raises Ended when it has to wait for its turn to wake."""
        if not self._awake:
            found = self.sandbox.state()
            if found == "frozen" and self._state is WorkspaceState.AWAKE:
                began = time.monotonic()
                self.sandbox.start()
                steps.workspace_woke(self.run.task.pk, self.run.fence, duration_s=time.monotonic() - began)
            elif found != "running" or self._state is not WorkspaceState.AWAKE:
                self._wake()
            self._awake = True
        return self.sandbox

    def _wake(self) -> None:
        """In this worker if it may wake now; else the task waits, and is called when it has woken."""
        waking = lifecycle.wake(self.run.task.workspace_id, gone=self._state is WorkspaceState.AWAKE)
        if waking.awake:
            steps.workspace_woke(self.run.task.pk, self.run.fence, duration_s=waking.duration_s)
            return
        before = f"{waking.ahead} other workspaces wake before it" if waking.ahead else "it is just falling asleep"
        reason = f"the workspace is asleep and is to wake: {before}"
        steps.wait_until(self.run.task.pk, self.run.fence, WaitingFor.WORKSPACE, reason, WAKE_RECHECK_S)
        raise Ended

    def freeze(self) -> bool:
        """Halt whatever runs; whether there was anything to halt.

        Not under an operator's command: it would stand still for as long as the task. Its own end halts the rest.
        """
        commanded = Workspace.objects.filter(pk=self.run.task.workspace_id, command__isnull=False).exists()
        if commanded or self.sandbox.state() != "running":
            return False
        self.sandbox.freeze()
        return True

    def end_commands(self) -> None:
        """Kill what the task's calls left running."""
        running = ToolCall.objects.filter(task=self.run.task, status=CallStatus.RUNNING.value)
        for call in running:
            self.sandbox.kill(call_key(call))
        if self.sandbox.state() == "frozen":
            self.sandbox.thaw()

    def changed(self) -> None:
        """A call that may touch files is about to run."""
        self._saved = None

    def saved(self) -> tuple[Snapshot, bool]:
        """A snapshot that equals the disk, and whether it was taken for this."""
        if self._saved is None:
            self._saved = self._unchanged_since_checkpoint()
        if self._saved is not None:
            return self._saved, False
        return self._save(), True

    def _save(self) -> Snapshot:
        snapshot = store_snapshot(self.run.task.workspace, self.sandbox.snapshot())
        self._saved = snapshot if snapshot.quiet else None
        return snapshot

    def _unchanged_since_checkpoint(self) -> Snapshot | None:
        """The newest checkpoint's snapshot, when no call, no operator and no compaction has touched files after it.

        Nor something that ran in the background when it was taken, whether it still runs now or not.
        """
        newest = self._newest
        if newest is None or not newest.snapshot.quiet:
            return None
        return None if touched_since(newest, self.run.task) else newest.snapshot

    def first_checkpoint(self) -> None:
        """The state before the first step of a branch that has none yet."""
        if self._newest is None:
            steps.first_checkpoint(self.run.task.pk, self.run.fence, self._save())

    def end_leftovers(self) -> None:
        """What an earlier task left running must not write to this one's disk: it ends first."""
        workspace = self.run.task.workspace
        if workspace.left_running:
            self.run.check_fence()
            self.sandbox.stop()
            leftovers_ended(self.run.task)
            workspace.left_running = False

    def put_back(self) -> None:
        """Restore what a rollback, a fork or a broken intake asked for, before anything else."""
        wanted = self.run.task.disk_restore
        if wanted is not None:
            half = not self.run.task.intake_done
            why = "the attachments came in only in part" if half else "the task goes on from a checkpoint"
            self.restore(wanted, why=why)
            self.run.task.disk_restore = None

    def restore(self, snapshot: Snapshot, *, why: str, step: Step | None = None) -> None:
        began = time.monotonic()
        self.run.check_fence()
        self.sandbox.restore(snapshot.ref)
        self._awake = False
        self._saved = snapshot
        steps.disk_restored(
            self.run.task.pk,
            self.run.fence,
            snapshot,
            why=why,
            duration_s=time.monotonic() - began,
            step=step,
        )


def call_key(call: ToolCall) -> str:
    """The name under which a call's commands run; the same for every attempt."""
    return f"c{call.pk}"
