"""A model call that is not the step's own reply: recorded, priced, interruptible, and never asked for twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.moments import Killed, at
from tests.harness import check_history, events, kinds, scripted_task, work
from workspaces.actions.leases import claim
from workspaces.engine import side_calls
from workspaces.engine.keeper import Orders
from workspaces.engine.run import Ended, Run
from workspaces.models import Message, ModelCall, Step, Task, UsageRecord
from workspaces.providers.base import ChatMessage, ChatRequest, ProviderError
from workspaces.queries.usage import usage_by_step
from workspaces.wire.driving import CallInterrupted

pytestmark = pytest.mark.django_db(transaction=True)

FINISH = "  - calls: [{name: finish, arguments: {summary: done}}]"
PRICES = {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}
SUMMARISE = ChatRequest(
    model="scripted", messages=(ChatMessage("user", "Summarise this."),), tools=(), purpose="summary"
)


def begun(side: str, **profile: object) -> tuple[Run, Step]:
    """A task that a worker holds, before its first step."""
    scenario = f"side: {{summary: {side}}}\nreplies:\n{FINISH}"
    task = scripted_task(scenario, **(PRICES | profile))
    held = claim(task.pk, worker="one", lease_s=600)
    assert held is not None
    Task.objects.filter(pk=task.pk).update(status="running")
    task = Task.objects.select_related("workspace", "profile_version__profile", "branch").get(pk=task.pk)
    return Run(task, held.fence, Orders(task.pk, held.fence)), Step(task=task, branch=task.branch, number=1)


def finish(run: Run) -> Task:
    """Whoever comes next carries the task to its end."""
    Task.objects.filter(pk=run.task.pk).update(lease_until=run.task.created_at, status="queued")
    return work(run.task, tampered=True)


def test_its_reply_is_stored_with_its_usage_and_is_no_part_of_the_conversation() -> None:
    run, step = begun("{text: short}")
    call = side_calls.ask(run, step, SUMMARISE)
    assert (call.text, call.purpose, call.status, call.attempt) == ("short", "summary", "replied", 1)
    assert [event["purpose"] for event in events(run.task, "model.replied")] == ["summary"]
    assert not Message.objects.filter(task=run.task, role="assistant").exists()
    task = finish(run)
    assert task.status == "succeeded"
    check_history(task)
    calls = ModelCall.objects.filter(task=task)
    assert list(calls.order_by("pk").values_list("purpose", flat=True)) == ["summary", "step"]
    assert task.cost_usd == sum(found.cost_usd for found in calls if found.cost_usd)
    assert UsageRecord.objects.filter(model_call=call, cost_usd__gt=0).exists()
    assert kinds(task).count("step.started") == 1
    (charted,) = usage_by_step(task)
    assert (charted.prompt_tokens, charted.cost_usd) == (task.prompt_tokens, task.cost_usd)


def test_the_same_request_of_a_step_is_not_asked_again_another_is() -> None:
    run, step = begun("{text: short}")
    first = side_calls.ask(run, step, SUMMARISE)
    assert side_calls.ask(run, step, SUMMARISE) == first
    other = side_calls.ask(run, step, replace(SUMMARISE, messages=(ChatMessage("user", "Shorter."),)))
    assert (other.pk != first.pk, other.attempt) == (True, 2)


def test_a_worker_that_dies_over_it_leaves_a_call_that_is_dropped_and_asked_again() -> None:
    run, step = begun("{text: short}")
    with pytest.MonkeyPatch.context() as patched:
        at(patched, "workspaces.actions.model_calls:store_side_reply", die)
        with pytest.raises(Killed):
            side_calls.ask(run, step, SUMMARISE)
    again = side_calls.ask(run, Step.objects.get(pk=step.pk), SUMMARISE)
    assert again.attempt == 2
    assert list(ModelCall.objects.order_by("pk").values_list("status", flat=True)) == ["dropped", "replied"]
    check_history(finish(run))


def die() -> None:
    raise Killed


def test_a_passing_failure_makes_the_task_wait_and_a_lasting_one_goes_to_the_caller() -> None:
    run, step = begun("{fault: {kind: overloaded}}")
    for _ in ("fails", "asks again"):
        with pytest.raises(Ended):
            side_calls.ask(run, step, SUMMARISE)
    run.task.refresh_from_db()
    assert (run.task.status, run.task.waiting_for) == ("waiting", "quota")
    run, step = begun("{fault: {kind: bad_request}}")
    with pytest.raises(ProviderError):
        side_calls.ask(run, step, SUMMARISE)
    assert ModelCall.objects.get(step=step).status == "failed"
    assert events(run.task, "model.failed")[0]["purpose"] == "summary"


def test_an_order_interrupts_it() -> None:
    run, step = begun("{text: late, delay_s: 60}")
    run.orders.interrupt.set()
    with pytest.raises(CallInterrupted):
        side_calls.ask(run, step, SUMMARISE)
    assert ModelCall.objects.get(step=step).status == "dropped"
    assert events(run.task, "model.dropped")[0]["purpose"] == "summary"


def test_a_steps_own_reply_is_not_asked_for_here() -> None:
    run, step = begun("{text: short}")
    with pytest.raises(ValueError, match="think"):
        side_calls.ask(run, step, replace(SUMMARISE, purpose="step"))
