"""One look of the scheduler: what waits longer than it should is woken, expired, or called again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from tests.harness import check_history, scripted_task, work
from workspaces import dispatch
from workspaces.domain.quotas import PoolState
from workspaces.domain.retry_budget import unblock
from workspaces.domain.states import TaskStatus
from workspaces.models import Escalation, Heartbeat, QuotaClaim, QuotaPool, QuotaShare, Task, Workspace

pytestmark = pytest.mark.django_db(transaction=True)
FINISH = "{calls: [{name: finish, arguments: {summary: done}}]}"
LIMITED = "replies: [{fault: {kind: rate_limit, retry_after_s: 40}}]"
ASKS = "replies: [{calls: [{name: ask_operator, arguments: {question: x}}]}]"


def test_one_look_ends_waits_expires_questions_and_calls_for_what_nobody_took_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited, asked, due = (scripted_task(text) for text in (LIMITED, ASKS, f"replies: [{FINISH}]"))
    assert [work(task).waiting_for for task in (limited, asked)] == ["quota", "operator"]
    past = Now() - timedelta(seconds=6)
    QuotaClaim.objects.update(state="idle")  # as of a version that knew no queue: the time alone counts
    QuotaShare.objects.update(open=0)
    QuotaPool.objects.update(state={})
    Task.objects.filter(pk=limited.pk).update(waiting_until=past)
    Task.objects.filter(pk=due.pk).update(dispatched_at=past)
    Escalation.objects.update(deadline=past)
    Workspace.objects.filter(pk=due.workspace_id).update(state="waking", state_until=past)
    called: list[int] = []
    woken: list[int] = []
    monkeypatch.setattr(dispatch, "advance", called.append)
    monkeypatch.setattr(dispatch, "wake_workspace", woken.append)
    call_command("scheduler", once=True)
    assert set(called) == {limited.pk, asked.pk, due.pk}
    assert woken == [due.workspace_id], "a claim to wake whose worker died is over"
    for task in (limited, asked):
        task.refresh_from_db()
        assert task.status == TaskStatus.QUEUED
        check_history(task)


def test_a_pool_whose_books_are_wrong_keeps_no_other_task_from_going_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torn, limited, due = (scripted_task(text) for text in (LIMITED, LIMITED, f"replies: [{FINISH}]"))
    assert [work(task).waiting_for for task in (torn, limited)] == ["quota", "quota"]
    first, other = QuotaPool.objects.order_by("pk")
    QuotaPool.objects.filter(pk=first.pk).update(state={"w": "torn"})
    free = PoolState.from_json(other.state)
    unblock(free)
    QuotaPool.objects.filter(pk=other.pk).update(state=free.as_json())
    Task.objects.filter(pk=due.pk).update(dispatched_at=Now() - timedelta(seconds=6))
    called: list[int] = []
    monkeypatch.setattr(dispatch, "advance", called.append)
    call_command("scheduler", once=True)
    assert set(called) == {limited.pk, due.pk}
    assert not Heartbeat.objects.exists(), "it is not called well"
    assert "a part of the scheduler's look failed" in caplog.text
