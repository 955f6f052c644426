"""No status moves without the event that says so, and what becomes due is called at once."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
from django.db import connection
from django.db.models.functions import Now

from tests.engine.moments import at
from tests.harness import quota_frees, scripted_task, work
from workspaces import dispatch
from workspaces.actions import schedule
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.latches import place_latch, release_latch
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import cancel_task, pause_task, resume_task
from workspaces.domain.escalations import Decision
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Checkpoint, Escalation, Task
from workspaces.queries.integrity import RULES

pytestmark = pytest.mark.django_db(transaction=True)
LIFE = """
replies:
  - fault: {kind: rate_limit, retry_after_s: 40, times: 1}
    calls: [{name: ask_operator, arguments: {question: WHICH}}]
  - repeat: 2
    calls: [{name: note, arguments: {section: a, text: "{{index}}"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
REFUSED = "replies: [{fault: {kind: auth}}]"


def life() -> str:
    """Another one each time: how often the first request has failed is counted by scenario."""
    return LIFE.replace("WHICH", f"q{secrets.token_hex(4)}")


def test_every_status_that_a_task_takes_is_told_by_the_write_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = (rule for rule in RULES if rule.name == "status")
    seen: set[str] = set()
    untold: list[tuple[int, str]] = []

    def look() -> None:
        seen.update(Task.objects.values_list("status", flat=True))
        with connection.cursor() as cursor:
            cursor.execute(rule.query(None))
            untold.extend(cursor.fetchall())

    at(monkeypatch, "workspaces.actions.pen:Pen.flush", look, before=False, times=10_000)
    task = work(scripted_task(life()))
    actor = task.created_by
    assert quota_frees() == 1
    work(task)
    answer_escalation(Escalation.objects.get(task=task).pk, decision=Decision.ANSWER, words="y", actor=actor)
    for mode in (PauseMode.BOUNDARY, PauseMode.NOW):
        pause_task(task.pk, mode=mode, reason="look", actor=actor)
        work(task)
        resume_task(task.pk, actor=actor)
        work(task, until=lambda t: t.steps_taken == 2)
    assert work(task).status == TaskStatus.SUCCEEDED
    roll_back(Checkpoint.objects.get(task=task, step_number=2).pk, reason="again", actor=actor)
    work(task)
    resume_task(task.pk, actor=actor)
    cancel_task(task.pk, reason="no", actor=actor)
    refused = [work(scripted_task(REFUSED)) for _ in range(2)]
    Escalation.objects.filter(task=refused[0]).update(deadline=Now())
    schedule.expire_due()
    question = Escalation.objects.get(task=refused[1])
    answer_escalation(question.pk, decision=Decision.GIVE_UP, words="no key", actor=question.task.created_by)
    hold = place_latch(mode=PauseMode.BOUNDARY, reason="all", actor=actor)
    held = work(scripted_task(life()))
    release_latch(hold.pk, reason="go", actor=actor)
    assert work(held).status == TaskStatus.WAITING
    assert untold == []
    assert seen == {status.value for status in TaskStatus}


def test_every_order_that_makes_a_task_due_calls_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(dispatch, "advance", called.append)

    def calls(order: Callable[[], object]) -> list[int]:
        called.clear()
        order()
        return list(called)

    task = scripted_task(life())
    assert called == [task.pk]
    pk, actor = task.pk, task.created_by
    work(task)
    assert calls(quota_frees) == [pk]
    work(task)
    question = Escalation.objects.get(task=task)
    answer = Decision.ANSWER
    assert calls(lambda: answer_escalation(question.pk, decision=answer, words="y", actor=actor)) == [pk]
    work(task, until=lambda t: t.status == TaskStatus.RUNNING)
    assert calls(lambda: pause_task(pk, mode=PauseMode.NOW, reason="x", actor=actor)) == [pk]
    work(task)
    assert calls(lambda: resume_task(pk, actor=actor)) == [pk]
    work(task)
    first = Checkpoint.objects.get(task=task, step_number=2)
    other: list[Task] = []
    assert calls(lambda: other.append(fork(first.pk, reason="try", actor=actor))) == [other[0].pk]
    assert calls(lambda: roll_back(first.pk, reason="again", actor=actor)) == [pk]
    work(other[0])
