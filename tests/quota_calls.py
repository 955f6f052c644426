"""Model calls without a model: intent, reply, failure as the engine writes them, for tests and the bench of quota."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tests.harness import create_task, make_workspace
from workspaces.actions import model_calls, steps
from workspaces.actions.admission import NotAdmitted
from workspaces.actions.leases import claim
from workspaces.actions.wishes import Wish
from workspaces.domain.states import ModelCallPurpose, TaskStatus
from workspaces.models import ModelCall, ProfileVersion, Step, Task, User
from workspaces.providers.base import ChatReply, ProviderError, TokenUsage
from workspaces.queries.prices import price_book

_count = itertools.count()


@dataclass
class Caller:
    """A task that one worker holds, with a step that asks a model again and again."""

    task: Task
    fence: int
    step: Step
    version: ProfileVersion

    def intend(self, into: int = 100, out: int = 100, *, retry: bool = False) -> ModelCall | None:
        """None: the task waits now."""
        wish = self.wish(into, out, retry=retry)
        for _ in range(50):
            try:
                return model_calls.intend_side(
                    self.task.pk,
                    self.fence,
                    self.step,
                    purpose=ModelCallPurpose.SUMMARY,
                    wish=wish,
                    request_hash=f"{next(_count)}",
                    tokens=into,
                )
            except NotAdmitted:
                if model_calls.wait_for_room(self.task.pk, self.fence, wish):
                    return None
        raise AssertionError("room came and went")

    def wish(self, into: int, out: int, *, retry: bool = False) -> Wish:
        return Wish(self.version, self.version.model, into, out, retry=retry)

    def reply(self, call: ModelCall, into: int = 100, out: int = 100) -> None:
        usage = TokenUsage(input_tokens=into, output_tokens=out)
        reply = ChatReply("text", (), "stop", usage, call.model)
        priced = price_book().priced(self.version, call.model, usage)
        model_calls.store_side_reply(self.task.pk, self.fence, self.step, call, reply, priced=priced)

    def fail(self, call: ModelCall, kind: str, retry_after_s: float | None = None) -> None:
        error = ProviderError(f"it failed: {kind}", kind=kind, permanent=False, retry_after_s=retry_after_s)
        model_calls.store_failure(self.task.pk, self.fence, self.step, call, error)

    def status(self) -> TaskStatus:
        return TaskStatus(Task.objects.values_list("status", flat=True).get(pk=self.task.pk))

    def go_on(self) -> bool:
        """Whether it was called and is taken up."""
        if self.status() is not TaskStatus.QUEUED:
            return False
        return steps.begin_running(self.task.pk, self.fence, worker="w", previous_owner="")


def caller(version: ProfileVersion, user: User | None = None) -> Caller:
    user = user or version.created_by
    workspace = make_workspace(user)
    task = create_task(workspace=workspace, profile_version=version, instruction="Ask.", actor=user)
    held = claim(task.pk, worker="w", lease_s=3600)
    assert held is not None
    assert steps.begin_running(task.pk, held.fence, worker="w", previous_owner="")
    task = Task.objects.select_related("branch").get(pk=task.pk)
    return Caller(task, held.fence, Step(task=task, branch=task.branch, number=1), version)
