"""Limits of a task that is under way, changed by a person: each field through the real engine, on the record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.harness import events, kinds, make_user, make_workspace, scripted_task, work
from tests.providers.servers import KEY, MODEL, OTHER_MODEL, Plan, Server
from workspaces.actions.budget_settings import create_budget
from workspaces.actions.clock import database_now
from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.pen import writing
from workspaces.actions.profiles import create_profile
from workspaces.actions.retune import retune_task
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import create_task, pause_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import BudgetPeriod, BudgetScope, PauseMode, TaskStatus, WaitingFor
from workspaces.models import AuditEntry, Checkpoint, Escalation, ModelCall, Step, Task
from workspaces.queries.contexts import request_of

pytestmark = pytest.mark.django_db(transaction=True)

NOTES = """
    replies:
      - calls: [{name: note, arguments: {section: plan, text: one}}]
      - calls: [{name: note, arguments: {section: plan, text: two}}]
      - calls: [{name: note, arguments: {section: plan, text: three}}]
      - calls: [{name: finish, arguments: {summary: done}}]
"""
QUIET = {"detectors": {"observe_only": True}}


def after_steps(count: int) -> Any:
    return lambda task: Step.objects.filter(task=task, phase="settled").count() >= count


def open_one(task: Task) -> Escalation:
    return Escalation.objects.get(task=task, status="open")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("openai") as running:
        yield running


def step(number: int) -> Plan:
    return Plan(
        calls=((f"c{number}", "note", (json.dumps({"section": "plan", "text": str(number)}),)),), finish="tool_calls"
    )


def test_a_raised_step_limit_answers_the_question_and_the_task_goes_on_with_all_that_it_had() -> None:
    task = work(scripted_task(NOTES, max_steps=2, **QUIET))
    asked = open_one(task)
    assert asked.kind == "limit"
    with pytest.raises(Refused, match="why you change"):
        retune_task(task.pk, {"max_steps": 9}, reason=" ", actor=task.created_by)
    retune_task(task.pk, {"max_steps": 1}, reason="less still", actor=task.created_by)
    asked.refresh_from_db()
    assert asked.status == "open", "a limit that still stands in the way is still asked about"

    retune_task(task.pk, {"max_steps": 9}, reason="it needs more", actor=task.created_by)
    asked.refresh_from_db()
    assert (asked.status, asked.decision, asked.answered_by) == ("answered", "raise", task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED.value
    assert events(task, "task.retuned")[1] == {
        "changes": [{"what": "max_steps", "old": 1, "new": 9, "own": True}],
        "reason": "it needs more",
    }
    entry = AuditEntry.objects.get(action="task.retune", reason="it needs more")
    assert (entry.actor, entry.task_id, entry.data["changes"][0]["new"]) == (task.created_by, task.pk, 9)
    with pytest.raises(Refused, match="has already succeeded"):
        retune_task(task.pk, {"max_steps": 10}, reason="too late", actor=task.created_by)


def test_a_passed_deadline_stops_at_the_boundary_and_more_time_lets_it_go_on() -> None:
    task = work(scripted_task(NOTES, **QUIET), until=after_steps(1))
    soon = database_now() + timedelta(hours=1)
    retune_task(task.pk, {"deadline": soon}, reason="by noon", actor=task.created_by)
    task = work(task, until=after_steps(2))
    assert task.status == TaskStatus.RUNNING.value
    Task.objects.filter(pk=task.pk).update(deadline=database_now() - timedelta(seconds=1))  # an hour went by
    task = work(task)
    asked = open_one(task)
    assert (task.waiting_for, asked.kind) == ("operator", "deadline")
    assert "deadline has passed" in task.waiting_reason
    assert Step.objects.filter(task=task).count() == 2, "no step was begun after it"

    with pytest.raises(Refused, match="in minutes"):
        answer_escalation(asked.pk, decision=Decision.EXTEND, actor=task.created_by)
    answer_escalation(asked.pk, decision=Decision.EXTEND, extra_minutes=30, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED.value
    told = events(task, "task.retuned")
    assert [change["what"] for each in told for change in each["changes"]] == ["deadline", "deadline"]


def test_another_model_and_output_limit_hold_from_the_next_call_on_and_past_requests_stay_what_they_were(
    server: Server,
) -> None:
    owner = make_user()
    version = create_profile(
        name="remote",
        workspace=None,
        actor=owner,
        api_key=KEY,
        provider="openai",
        base_url=server.base_url,
        model=MODEL,
        tools=["note", "finish"],
        local_allowed=True,
        max_output_tokens=1_000,
        input_usd_per_mtok="1",
        output_usd_per_mtok="2",
        detectors={"observe_only": True},
    )
    server.plans = [
        step(1),
        step(2),
        step(3),
        Plan(calls=(("end", "finish", ('{"summary": "done"}',)),), finish="tool_calls"),
    ]
    task = create_task(workspace=make_workspace(owner), profile_version=version, instruction="Count.", actor=owner)
    task = work(task, until=after_steps(1))

    def while_the_second_call_is_under_way(asked: dict[str, Any]) -> int:
        if len(server.requests) == 2:
            wanted = {"model": OTHER_MODEL, "max_output_tokens": 333}
            retune_task(task.pk, wanted, reason="too slow", actor=owner)
            connection.close()
        return 100

    server.counts = while_the_second_call_is_under_way
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED.value
    calls = list(ModelCall.objects.filter(task=task).order_by("pk"))
    assert [call.model for call in calls] == [MODEL, MODEL, OTHER_MODEL, OTHER_MODEL]
    assert [call.reserved_output_tokens for call in calls] == [1_000, 1_000, 333, 333]
    assert [body["model"] for body in server.requests] == [MODEL, MODEL, OTHER_MODEL, OTHER_MODEL]
    assert len({call.pool_id for call in calls}) == 2, "the other model draws on its own pool"
    steps = list(Step.objects.filter(task=task).order_by("number"))
    assert [row.manifest["reserved_output_tokens"] for row in steps] == [1_000, 1_000, 333, 333]
    assert [request_of(row).exact for row in steps] == [True] * 4
    sources = {call.pk: set(call.usage.values_list("price_source", flat=True)) for call in calls}
    assert all("profile" in source for source in sources[calls[1].pk])
    assert not any("profile" in source for source in sources[calls[2].pk]), "its own price, not that of the other"
    assert calls[2].cost_usd is not None


def test_own_limits_survive_a_rollback_and_a_fork_takes_them_along() -> None:
    task = work(scripted_task(NOTES, **QUIET), until=after_steps(2))
    owner = task.created_by
    ahead = database_now() + timedelta(hours=2)
    wanted = {"model": "other", "max_output_tokens": 500, "max_steps": 50, "interactive": True, "deadline": ahead}
    made = retune_task(task.pk, wanted, reason="all of it", actor=owner)
    assert {change.what for change in made} == set(wanted)
    with pytest.raises(Refused, match="Nothing was changed"):
        retune_task(task.pk, wanted, reason="again", actor=owner)
    task = work(task, until=after_steps(3))
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=owner)
    task = work(task)
    checkpoint = Checkpoint.objects.filter(task=task).order_by("seq")[1]
    task = work(roll_back(checkpoint.pk, reason="again", actor=owner))
    columns = ("model_override", "max_output_tokens_override", "max_steps", "interactive", "deadline")
    assert [getattr(task, column) for column in columns] == ["other", 500, 50, True, ahead]
    made_of_it = fork(checkpoint.pk, reason="beside", actor=owner)
    assert [getattr(made_of_it, column) for column in columns] == ["other", 500, 50, True, ahead]
    Task.objects.filter(pk=task.pk).update(deadline=database_now() - timedelta(minutes=1))
    assert fork(checkpoint.pk, reason="later", actor=owner).deadline is None
    work(made_of_it)
    assert set(ModelCall.objects.filter(task=made_of_it).values_list("model", flat=True)) == {"other"}


def test_what_a_profile_says_is_not_set_on_the_task_and_nonsense_changes_nothing() -> None:
    task = work(scripted_task(NOTES, **QUIET), until=after_steps(1))
    owner, profile = task.created_by, task.profile_version
    for wrong, words in (
        ({"max_steps": 0}, "how many steps"),
        ({"max_output_tokens": 128_000}, "less than the window"),
        ({"max_output_tokens": 3}, "16 tokens at least"),
        ({"model": "x" * 201}, "200 characters"),
        ({"model": "gpt-4", "max_output_tokens": 8_192}, "window of 8,192"),
        ({"deadline": database_now() - timedelta(minutes=1)}, "past already"),
        ({"deadline": database_now() + timedelta(days=400)}, "366 days"),
    ):
        with pytest.raises(Refused, match=words):
            retune_task(task.pk, wrong, reason="wrong", actor=owner)
    assert "task.retuned" not in kinds(task)
    retune_task(task.pk, {"model": "m", "max_output_tokens": 99}, reason="try", actor=owner)
    same = {"model": profile.model, "max_output_tokens": profile.max_output_tokens}
    back = retune_task(task.pk, same, reason="back", actor=owner)
    assert [change.own for change in back] == [False, False]
    task.refresh_from_db()
    assert (task.model_override, task.max_output_tokens_override) == ("", None)


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten_unseen() -> None:
    task = work(scripted_task(NOTES, **QUIET), until=after_steps(1))
    seen = {"max_steps": task.max_steps, "model": ""}
    retune_task(task.pk, {"max_steps": 7}, reason="first", actor=task.created_by)
    with pytest.raises(Refused, match="meanwhile, to 7"):
        retune_task(task.pk, {"max_steps": 8, "model": "m"}, reason="second", actor=task.created_by, seen=seen)
    retune_task(task.pk, {"max_steps": 7, "model": "m"}, reason="the same", actor=task.created_by, seen=seen)
    task.refresh_from_db()
    assert (task.max_steps, task.model_override) == (7, "m")


def test_what_waits_for_quota_asks_anew_with_the_changed_limits() -> None:
    task = work(scripted_task(NOTES, **QUIET), until=after_steps(1))
    with writing(task.pk) as pen:
        pen.wait(WaitingFor.QUOTA, "no room in the pool", pen.now + timedelta(hours=1))
    retune_task(task.pk, {"max_steps": 60}, reason="steps do not matter to the pool", actor=task.created_by)
    assert Task.objects.get(pk=task.pk).status == TaskStatus.WAITING.value
    retune_task(task.pk, {"model": "other"}, reason="that pool is empty", actor=task.created_by)
    assert Task.objects.get(pk=task.pk).status == TaskStatus.QUEUED.value
    assert work(task).status == TaskStatus.SUCCEEDED.value


def test_what_waits_for_a_budget_asks_anew_with_a_smaller_answer() -> None:
    task = scripted_task(NOTES, **QUIET)
    create_budget(
        scope=BudgetScope.TASK,
        period=BudgetPeriod.TASK,
        task=task,
        actor=task.created_by,
        reason="a test",
        limit_tokens=task.profile_version.max_output_tokens,
    )
    assert work(task).waiting_for == WaitingFor.BUDGET.value
    retune_task(task.pk, {"interactive": True}, reason="the budget has no queue", actor=task.created_by)
    assert Task.objects.get(pk=task.pk).status == TaskStatus.WAITING.value
    retune_task(task.pk, {"max_output_tokens": 64}, reason="so it fits", actor=task.created_by)
    assert Task.objects.get(pk=task.pk).status == TaskStatus.QUEUED.value
    assert Step.objects.filter(task=work(task)).exists()
