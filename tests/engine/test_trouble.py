"""What the task says when its model, its sandbox or agentdesk itself fails: nothing hangs, nothing is dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.harness import events, kinds, quota_frees, scripted_task, work
from workspaces.actions import quota_sweep, schedule
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.engine import boxes
from workspaces.engine.boxes import sandbox_for
from workspaces.models import Escalation, ModelCall, Task, ToolCall
from workspaces.sandboxes.base import SandboxGone
from workspaces.tools.base import ToolContext, ToolResult
from workspaces.tools.shell import Shell

pytestmark = pytest.mark.django_db(transaction=True)

FINISH = "{name: finish, arguments: {summary: done}}"


def test_a_rate_limit_makes_the_task_wait_for_quota_as_long_as_it_was_asked_to() -> None:
    task = work(
        scripted_task(f"replies: [{{fault: {{kind: rate_limit, retry_after_s: 40, times: 1}}, calls: [{FINISH}]}}]")
    )
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "quota")
    assert task.waiting_until is not None
    assert timedelta(seconds=35) < task.waiting_until - timezone.now() <= timedelta(seconds=41)
    assert "Attempt 1 failed" in task.waiting_reason
    assert (quota_sweep.look(), schedule.end_waits()) == (0, 0)
    assert quota_frees() == 1
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert list(ModelCall.objects.filter(task=task).order_by("attempt").values_list("status", flat=True)) == [
        "failed",
        "replied",
    ]


def test_a_wrong_key_asks_a_person_and_goes_on_when_told_to() -> None:
    task = work(scripted_task(f"replies: [{{fault: {{kind: auth, times: 1}}, calls: [{FINISH}]}}]"))
    question = Escalation.objects.get(task=task, status="open")
    assert question.kind == "provider"
    answer_escalation(question.pk, decision=Decision.CONTINUE, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_a_provider_that_stays_away_asks_a_person_in_the_end() -> None:
    task = scripted_task("replies: [{fault: {kind: server}}]")
    for _ in range(8):
        task = work(task)
        quota_frees()
    task = work(task)
    assert Escalation.objects.get(task=task, status="open").kind == "provider"
    assert kinds(task).count("model.failed") == 8


def test_a_scenario_that_is_none_asks_a_person() -> None:
    task = work(scripted_task("replies: 5"))
    assert Escalation.objects.get(task=task).kind == "provider"


def test_a_request_that_does_not_fit_is_not_sent_and_nothing_is_left_out() -> None:
    task = work(scripted_task(f"replies: [{{calls: [{FINISH}]}}]", context_window_tokens=4_200))
    assert Escalation.objects.get(task=task).kind == "context_full"
    assert not ModelCall.objects.exists()


def test_a_deadline_that_passes_rejects_the_held_question_and_the_agent_goes_on() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls: [{name: ask_operator, arguments: {question: "Which?"}}]
              - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
            """
        )
    )
    Escalation.objects.update(deadline=timezone.now())
    assert schedule.expire_due() == 1
    task = work(task)
    assert "No operator answered" in task.result


def test_a_deadline_that_passes_on_the_task_pauses_it_with_everything_kept() -> None:
    task = work(scripted_task("replies: [{fault: {kind: auth}}]"))
    Escalation.objects.update(deadline=timezone.now())
    schedule.expire_due()
    assert work(task).status == TaskStatus.PAUSED


def test_a_task_given_up_fails_with_the_words() -> None:
    task = work(scripted_task("replies: [{fault: {kind: auth}}]"))
    answer_escalation(
        Escalation.objects.get(task=task).pk, decision=Decision.GIVE_UP, actor=task.created_by, words="no key"
    )
    task.refresh_from_db()
    assert (task.status, task.result) == (TaskStatus.FAILED, "no key")
    assert task.workspace.__class__.objects.get(pk=task.workspace_id).held_by_id is None


def test_a_huge_output_lies_in_a_file_and_a_pointer_in_the_context() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - calls: [{name: shell, arguments: {command: "yes 0123456789 | head -c 3000000"}}]
              - calls: [{name: finish, arguments: {summary: done}}]
            """
        )
    )
    call = ToolCall.objects.get(task=task, name="shell")
    path = call.result_data["offloaded_path"]
    assert len(sandbox_for(task.workspace).read(path)) >= 3_000_000
    assert path in call.result
    assert len(call.result) < 20_000


@pytest.mark.parametrize("output", ["head -c 4000 /dev/urandom", r"printf 'a\000b'", r"printf '\355\240\200'"])
def test_output_that_is_no_text_is_named_and_stored(output: str) -> None:
    task = work(
        scripted_task(
            f"""
            replies:
              - calls: [{{name: shell, arguments: {{command: {output!r}}}}}]
              - calls: [{FINISH}]
            """
        )
    )
    assert task.status == TaskStatus.SUCCEEDED
    assert "\x00" not in ToolCall.objects.get(task=task, name="shell").result


def test_a_failure_of_agentdesk_itself_asks_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    from workspaces.queries import contexts

    task = scripted_task(f"replies: [{{calls: [{FINISH}]}}]")
    with monkeypatch.context() as patched:
        patched.setattr(contexts, "request_hash", lambda request: 1 / 0)
        task = work(task)
    question = Escalation.objects.get(task=task, status="open")
    assert question.kind == "internal"
    assert "ZeroDivisionError" in question.question
    answer_escalation(question.pk, decision=Decision.CONTINUE, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED
    assert events(task, "task.succeeded")


@pytest.mark.docker
def test_an_engine_that_is_away_makes_the_task_wait_then_asks_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setattr(boxes, "_drivers", {})
    monkeypatch.setattr(boxes, "_engines", {})
    task = scripted_task(
        f"replies: [{{calls: [{{name: shell, arguments: {{command: ls}}}}]}}, {{calls: [{FINISH}]}}]", driver="docker"
    )
    task = work(task)
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "timer")
    assert "does not start" in task.waiting_reason
    for _ in range(5):
        Task.objects.filter(pk=task.pk).update(waiting_until=timezone.now())
        schedule.end_waits()
        task = work(task)
    question = Escalation.objects.get(task=task, status="open")
    assert question.kind == "sandbox"
    assert ToolCall.objects.filter(task=task, attempt__gt=0).count() == 0
    monkeypatch.undo()
    answer_escalation(question.pk, decision=Decision.CONTINUE, actor=task.created_by)
    assert work(task).status == TaskStatus.SUCCEEDED


def test_a_command_that_ends_its_sandbox_each_time_is_not_run_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []

    def ends_it(shell: Shell, arguments: Any, context: ToolContext) -> ToolResult:
        if arguments["command"] != "suicide":
            return run(shell, arguments, context)
        began.append(context.key)
        context.sandbox.write("half.txt", b"half")
        raise SandboxGone("the sandbox went away")

    run = Shell.run
    monkeypatch.setattr(Shell, "run", ends_it)
    task = work(
        scripted_task(
            f"""
            replies:
              - calls: [{{name: shell, arguments: {{command: "suicide"}}}}]
              - calls: [{{name: shell, arguments: {{command: "ls"}}}}]
              - calls: [{FINISH}]
            """
        )
    )
    assert len(began) == 3
    assert task.status == TaskStatus.SUCCEEDED
    first, second = ToolCall.objects.filter(task=task, name="shell").order_by("pk")
    assert first.result_class == "error"
    assert "3 times" in first.result
    assert "half.txt" not in second.result, "the files are as they were before the call"
