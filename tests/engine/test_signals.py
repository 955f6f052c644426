"""What may alert leaves a signal in its own transaction: it begins, gets worse, ends. Of the rest nothing is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from tests.actions.test_incidents import FINDING, GROWN
from tests.engine.test_budgets import PRICED, STEPS, account, budget
from tests.engine.test_ladder import loop_task, looping, question
from tests.engine.test_lifecycle import age
from tests.harness import SEND_INVOICE, check_history, quota_pool, scripted_task, work
from tests.quota_calls import caller
from workspaces.actions import alert_signals, budget_signals
from workspaces.actions.budget_settings import change_budget, end_budget
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.incidents import report, resolve_incident
from workspaces.actions.pen import writing
from workspaces.actions.retune import retune_task
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.schedule import expire_due
from workspaces.actions.tasks import cancel_task, end_task, pause_task, resume_task, send_message
from workspaces.domain.escalations import Decision
from workspaces.domain.incidents import Severity
from workspaces.domain.states import BudgetPeriod, BudgetScope, PauseMode, TaskStatus
from workspaces.engine import lifecycle
from workspaces.models import AlertSignal, BudgetAccount, Checkpoint, Escalation, Incident, Task
from workspaces.sandboxes.base import SandboxError

pytestmark = pytest.mark.django_db(transaction=True)

QUIET = "replies: [{calls: [{name: note, arguments: {section: a, text: b}}]}, {calls: [{name: finish, arguments: {}}]}]"
HELD = """
replies:
  - calls: [{name: send_invoice, arguments: {customer: Kestrel, amount: 5}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""


def told(**of: Any) -> list[str]:
    return [f"{each.kind} {each.edge}" for each in AlertSignal.objects.filter(**of).order_by("pk")]


def one(kind: str, edge: str = "began") -> AlertSignal:
    return AlertSignal.objects.get(kind=kind, edge=edge)


def held_task(*policy: dict[str, Any]) -> Task:
    rules = policy or ({"tool": "send_*", "verdict": "hold"},)
    return work(scripted_task(HELD, declared_tools=[SEND_INVOICE], policy=list(rules)))


def late(task: Task) -> None:
    Escalation.objects.filter(task=task, status="open").update(deadline=timezone.now() - timedelta(seconds=1))
    assert expire_due() == 1
    check_history(task)


def test_a_step_that_has_nothing_to_tell_signals_nothing_and_a_success_is_told_once() -> None:
    task = work(scripted_task(QUIET), until=lambda t: t.steps_taken == 1)
    assert told() == []
    work(task)
    assert told() == ["task_finished happened"]
    end = one("task_finished", "happened")
    assert (end.task, end.workspace_id, end.user_id) == (task, task.workspace_id, task.created_by_id)
    assert end.profile_id == task.profile_version.profile_id
    assert end.digested_at is None


def test_a_loop_and_the_question_about_it_are_one_trouble_until_both_are_over() -> None:
    task = work(loop_task(9))
    assert told() == ["incident began", "escalation_opened began"]
    incident = Incident.objects.get(task=task)
    asked, seen = one("escalation_opened"), one("incident")
    assert (asked.incident, seen.incident) == (incident, incident)
    assert (asked.subject, seen.subject) == (f"escalation:{asked.escalation_id}", f"incident:{incident.pk}")
    assert (seen.detail, seen.cause) == ("loop", incident.cause)
    assert "nope.txt" in seen.words
    answer_escalation(question(task).pk, decision=Decision.GIVE_UP, actor=task.created_by, words="no use")
    assert told()[2:] == ["escalation_opened ended", "incident ended", "task_failed happened"]
    check_history(task)


def test_a_task_that_the_runtime_stops_has_failed_until_a_person_takes_it_up() -> None:
    task = work(loop_task(30, ladder={"nudges": 0, "stop_after": 1}))
    answer_escalation(question(task).pk, decision=Decision.CONTINUE, actor=task.created_by)
    task = work(task)
    assert task.status == TaskStatus.FAILED
    assert told(kind="task_failed") == ["task_failed began"]
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    roll_back(first.pk, reason="again", actor=task.created_by)
    assert told(kind="task_failed") == ["task_failed began", "task_failed ended"]
    assert told(kind="incident")[-1] == "incident ended"
    cancel_task(task.pk, reason="enough", actor=task.created_by)
    assert not told(kind="task_finished")


def test_whoever_goes_on_from_a_failed_task_in_a_fork_has_taken_it_up() -> None:
    task = work(loop_task(9))
    with writing(task.pk) as pen:
        end_task(pen, TaskStatus.FAILED, "it broke")
    newest = Checkpoint.objects.filter(task=task).order_by("-seq")[0]
    fork(newest.pk, reason="try otherwise", actor=task.created_by, hold=True)
    assert told(kind="task_failed") == ["task_failed began", "task_failed ended"]
    check_history(task)


def test_an_incident_tells_when_it_gets_graver_and_not_when_it_only_grows() -> None:
    task = work(scripted_task(QUIET))
    AlertSignal.objects.all().delete()
    for finding in (FINDING, replace(FINDING, last_seq=6), GROWN, replace(GROWN, last_seq=8)):
        with writing(task.pk) as pen:
            report(pen, finding)
    assert told() == ["incident began", "incident worse"]
    assert [each.severity for each in AlertSignal.objects.order_by("pk")] == ["warning", "error"]
    resolve_incident(Incident.objects.get().pk, actor=task.created_by, reason="seen to")
    assert told()[2:] == ["incident ended"]


def test_a_question_that_nobody_answers_is_overdue_until_a_person_comes() -> None:
    task = held_task({"tool": "send_*", "verdict": "hold", "on_expiry": "escalate", "expires_s": 60})
    late(task)
    assert told() == ["escalation_opened began", "escalation_overdue began"], "an owner is asked now"
    late(task)
    assert told()[2:] == ["escalation_opened ended", "escalation_overdue worse"]
    assert one("escalation_overdue").severity == Severity.ERROR.value
    send_message(task.pk, text="I am here", actor=task.created_by)
    assert told()[4:] == ["escalation_overdue ended"]
    send_message(task.pk, text="still", actor=task.created_by)
    assert told()[5:] == []


def test_an_owners_late_answer_ends_what_was_overdue() -> None:
    task = held_task({"tool": "send_*", "verdict": "hold", "on_expiry": "escalate", "expires_s": 60})
    late(task)
    send_message(task.pk, text="soon", actor=task.created_by)
    assert len(told()) == 2, "the question still waits for its owner"
    answer_escalation(question(task).pk, decision=Decision.APPROVE, actor=task.created_by)
    assert told()[2:] == ["escalation_opened ended", "escalation_overdue ended"]
    check_history(task)


def test_what_expired_is_over_when_the_task_has_ended_or_goes_on_by_hand() -> None:
    ended = held_task()
    late(ended)
    assert work(ended).status == TaskStatus.SUCCEEDED
    assert told(kind="escalation_overdue") == ["escalation_overdue began", "escalation_overdue ended"]
    paused = work(scripted_task(looping(9)))
    late(paused)
    assert told(kind="escalation_overdue", task=paused) == ["escalation_overdue began"]
    resume_task(paused.pk, actor=paused.created_by)
    assert told(kind="escalation_overdue", task=paused)[1:] == ["escalation_overdue ended"]


def test_a_limit_that_is_moved_or_a_task_that_is_cancelled_ends_the_question() -> None:
    task = work(scripted_task(QUIET, max_steps=1))
    assert told() == ["escalation_opened began"]
    assert one("escalation_opened").detail == "limit"
    retune_task(task.pk, {"max_steps": 5}, reason="more", actor=task.created_by)
    assert told() == ["escalation_opened began", "escalation_opened ended"]
    held = held_task()
    cancel_task(held.pk, reason="no", actor=held.created_by)
    assert told(task=held) == ["escalation_opened began", "escalation_opened ended"]


def test_a_budget_tells_each_threshold_once_and_is_dealt_with_when_it_is_raised() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.USER, "0.0045", task=task, alerts=[30, 60])
    task = work(task)
    assert (task.status, task.waiting_for) == ("waiting", "budget")
    assert told() == ["budget_threshold began", "budget_threshold worse", "budget_exhausted began"]
    low, high, full = AlertSignal.objects.order_by("pk")
    assert (low.severity, high.severity, full.severity) == ("info", "info", "error")
    assert "is past 60 %: $0.003 of $0.0045" in high.words
    assert "has no room for this call" in full.words
    assert (full.budget, full.user_id, full.task, full.workspace) == (limit, task.created_by_id, None, None)
    assert full.data["budget_name"] == f"the budget of user {task.created_by} in total", "its alert is called so"
    work(task)
    assert len(told()) == 3, "it waits, and nobody is told again"
    change_budget(limit.pk, limit_usd=Decimal(1), reason="go on", actor=task.created_by)
    assert told()[3:] == ["budget_threshold ended", "budget_exhausted ended"]
    check_history(task)


def test_a_budgets_trouble_ends_with_the_budget_and_with_its_period() -> None:
    task = scripted_task(STEPS, **PRICED)
    limit = budget(BudgetScope.WORKSPACE, "0.0045", task=task, period=BudgetPeriod.DAY, alerts=[60])
    other = budget(BudgetScope.TASK, "0.0045", task=task, alerts=[60])
    work(task)
    assert told(kind="budget_exhausted") == ["budget_exhausted began"] * 2
    assert told(budget=other, task=task) == ["budget_threshold began", "budget_exhausted began"]
    end_budget(other.pk, reason="enough", actor=task.created_by)
    assert told(budget=other)[2:] == ["budget_threshold ended", "budget_exhausted ended"]
    budget_signals.end_periods()
    assert len(told(budget=limit)) == 2
    BudgetAccount.objects.filter(pk=account(limit).pk).update(ends_at=timezone.now())
    for _ in range(2):
        budget_signals.end_periods()
    assert told(budget=limit)[2:] == ["budget_threshold ended", "budget_exhausted ended"]


def test_a_pool_that_is_held_for_long_is_told_once_and_a_short_refusal_not() -> None:
    task = scripted_task(QUIET)
    pool = quota_pool(task.profile_version)
    first, second = caller(task.profile_version), caller(task.profile_version)
    calls = first.intend(), second.intend()
    assert calls[0] is not None
    assert calls[1] is not None
    first.fail(calls[0], "rate_limit", retry_after_s=5)
    assert told() == []
    second.fail(calls[1], "rate_limit", retry_after_s=120)
    assert told() == ["quota_exhausted began"]
    signal = one("quota_exhausted")
    assert (signal.pool, signal.subject, signal.detail) == (pool, f"pool:{pool.pk}", "held_back")
    assert (signal.task, signal.workspace) == (None, None), "whoever draws on a pool is told, not one of them"


def test_a_sandbox_that_does_not_start_or_sleep_is_told_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    task = scripted_task(QUIET)
    pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="so that nothing wants its sandbox", actor=task.created_by)
    kind = type(lifecycle.sandbox_for(task.workspace))

    def broken(self: object) -> None:
        raise SandboxError("no such image", hint="build it")

    with monkeypatch.context() as patched:
        patched.setattr(kind, "start", broken)
        with pytest.raises(SandboxError):
            lifecycle.wake(task.workspace_id)
    assert told() == ["sandbox_unhealthy began"]
    began = one("sandbox_unhealthy")
    assert (began.subject, began.workspace_id) == (f"wake:{task.workspace_id}", task.workspace_id)
    assert "no such image build it" in began.words
    assert lifecycle.wake(task.workspace_id).awake
    assert told()[1:] == ["sandbox_unhealthy ended"]
    with monkeypatch.context() as patched:
        patched.setattr(kind, "snapshot", broken)
        for _ in range(2):
            age(task.workspace_id)
            assert not lifecycle.sleep(task.workspace_id)
    assert told()[2:] == ["sandbox_unhealthy began"], "it is tried every second, and told once"
    age(task.workspace_id)
    assert lifecycle.sleep(task.workspace_id)
    assert told()[3:] == ["sandbox_unhealthy ended"]
    assert lifecycle.wake(task.workspace_id).awake
    assert len(told()) == 4, "that it works is no news"


def test_old_signals_go_when_their_trouble_is_over_and_were_digested() -> None:
    task = work(loop_task(9))
    alone = held_task()
    answer_escalation(question(alone).pk, decision=Decision.REJECT, actor=alone.created_by, words="no")
    long_ago = timezone.now() - timedelta(days=31)
    AlertSignal.objects.update(at=long_ago)
    assert alert_signals.forget_old() == 0, "nobody has digested them"
    AlertSignal.objects.update(digested_at=long_ago)
    assert alert_signals.forget_old() == 2
    assert told() == ["incident began", "escalation_opened began"], "they go on"
    check_history(task)
    answer_escalation(question(task).pk, decision=Decision.GIVE_UP, actor=task.created_by, words="no use")
    AlertSignal.objects.filter(edge="ended").update(at=long_ago, digested_at=long_ago)
    assert alert_signals.forget_old() == 4
    assert told() == ["task_failed happened"]
