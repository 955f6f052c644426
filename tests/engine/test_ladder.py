"""Loop seen, told, asked, stopped: each rung once, whatever dies, and measured by what the agent did next."""

from __future__ import annotations

import pytest

from tests.engine.moments import killed_at
from tests.harness import (
    create_task,
    events,
    kinds,
    make_user,
    make_workspace,
    quota_frees,
    scripted_profile,
    scripted_task,
    work,
)
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import resume_task, send_message
from workspaces.domain.escalations import Decision
from workspaces.domain.states import TaskStatus
from workspaces.models import AuditEntry, Checkpoint, Escalation, Incident, Message, Task

pytestmark = pytest.mark.django_db(transaction=True)

MISSING = "{name: read_file, arguments: {path: nope.txt}}"  # the same error each time: found at the third


def looping(times: int, then: int = 3) -> str:
    return f"""
replies:
  - {{repeat: {times}, calls: [{MISSING}]}}
  - repeat: {then}
    calls: [{{name: write_file, arguments: {{path: "f{{{{index}}}}.txt", content: "{{{{index}}}}"}}}}]
  - calls: [{{name: finish, arguments: {{summary: looked elsewhere}}}}]
"""


def loop_task(times: int, **detectors: object) -> Task:
    return scripted_task(looping(times), detectors=detectors)


def incident(task: Task) -> Incident:
    return Incident.objects.get(task=task)


def rungs(task: Task) -> list[str]:
    return [event["rung"] for event in events(task, "incident.responded")]


def nudges(task: Task) -> list[str]:
    found = Message.objects.filter(task=task, role="user", content__startswith="Notice from the runtime")
    return list(found.order_by("seq").values_list("content", flat=True))


def question(task: Task) -> Escalation:
    return Escalation.objects.get(task=task, status="open")


def test_a_loop_is_told_to_the_model_with_its_evidence_and_the_change_is_measured() -> None:
    task = work(loop_task(3))
    assert task.status == TaskStatus.SUCCEEDED
    (told,) = nudges(task)
    assert "steps 1, 2 and 3" in told
    assert "nope.txt" in told
    found = incident(task)
    assert (found.kind, found.count, found.rung, found.nudges) == ("loop", 3, "nudged", 1)
    assert [place["step"] for place in found.evidence] == [1, 2, 3]
    assert found.nudge_helped is True
    assert found.responses[0]["helped"] is True
    assert events(task, "incident.measured")[0]["helped"] is True
    assert (found.state, found.resolved_by) == ("resolved", None)
    assert kinds(task).index("incident.opened") > kinds(task).index("call.finished")


def test_the_nudge_is_in_the_very_next_request() -> None:
    task = work(loop_task(3), until=lambda t: t.steps_taken == 3)
    newest = Message.objects.filter(task=task).order_by("seq").last()
    assert newest is not None
    assert newest.content == nudges(task)[0]


def test_what_goes_on_is_asked_and_an_operators_words_let_it_go_on() -> None:
    task = work(loop_task(5))
    assert (task.status, task.waiting_for) == (TaskStatus.WAITING, "operator")
    asked = question(task)
    assert (asked.kind, asked.incident) == ("incident", incident(task))
    assert "nope.txt" in asked.question
    assert rungs(task) == ["nudged", "escalated"]
    assert incident(task).nudge_helped is False
    answer_escalation(asked.pk, decision=Decision.CONTINUE, actor=task.created_by, words="it is called yes.txt")
    assert AuditEntry.objects.filter(task=task, action="escalation.continue").exists()
    task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert Message.objects.filter(task=task, content__contains="it is called yes.txt").exists()
    assert rungs(task) == ["nudged", "escalated"]
    assert incident(task).state == "resolved"


def test_a_persons_words_begin_the_count_anew() -> None:
    task = work(loop_task(20), until=lambda t: t.steps_taken == 4)
    send_message(task.pk, text="try once more", actor=task.created_by)
    task = work(task, until=lambda t: t.steps_taken == 6)
    assert rungs(task) == ["nudged"]
    task = work(task)
    assert rungs(task) == ["nudged", "nudged", "escalated"]
    assert task.steps_taken == 9


def test_giving_up_ends_the_task_and_its_incident() -> None:
    task = work(loop_task(9))
    answer_escalation(question(task).pk, decision=Decision.GIVE_UP, actor=task.created_by, words="no use")
    task.refresh_from_db()
    assert task.status == TaskStatus.FAILED
    found = incident(task)
    assert (found.state, found.resolved_by) == ("resolved", task.created_by)
    assert "no use" in found.resolution


def test_after_people_were_asked_as_often_as_the_profile_says_it_is_stopped() -> None:
    task = work(loop_task(30, ladder={"nudges": 0, "stop_after": 2}))
    for _ in range(2):
        assert task.status == TaskStatus.WAITING
        answer_escalation(question(task).pk, decision=Decision.CONTINUE, actor=task.created_by)
        task = work(task)
    assert task.status == TaskStatus.FAILED
    assert rungs(task) == ["escalated", "escalated", "stopped"]
    assert "nope.txt" in task.result
    assert "asked 2 times" in task.result
    assert incident(task).rung == "stopped"


def test_it_never_stops_by_itself_when_the_profile_says_so() -> None:
    task = work(loop_task(30, ladder={"nudges": 0, "stop_after": 0}))
    for _ in range(5):
        answer_escalation(question(task).pk, decision=Decision.CONTINUE, actor=task.created_by)
        task = work(task)
    assert task.status == TaskStatus.WAITING


def test_a_profile_that_only_observes_leaves_the_agent_alone() -> None:
    task = work(loop_task(9, observe_only=True))
    assert task.status == TaskStatus.SUCCEEDED
    assert incident(task).count == 9
    assert rungs(task) == nudges(task) == []


def test_a_detector_can_be_turned_off() -> None:
    task = work(loop_task(9, same_error=0, no_progress=0, nothing_works=0, circling=0))
    assert not Incident.objects.filter(task=task, pattern="same_error").exists()


def test_polling_whose_result_changes_is_left_alone() -> None:
    task = work(
        scripted_task(
            """
            replies:
              - {repeat: 15, calls: [{name: shell, arguments: {command: "echo x >> n; wc -l < n"}}]}
              - calls: [{name: finish, arguments: {summary: done}}]
            """
        )
    )
    assert task.status == TaskStatus.SUCCEEDED
    assert not Incident.objects.filter(task=task).exists()


def test_what_was_not_seen_for_a_while_is_over() -> None:
    task = work(scripted_task(looping(3, then=9)), until=lambda t: t.steps_taken == 9)
    found = incident(task)
    assert (found.state, found.resolved_by) == ("resolved", None)
    assert "not seen again for 5 steps" in found.resolution


@pytest.mark.parametrize(
    ("place", "before"),
    [
        ("workspaces.engine.detect:seen", False),
        ("workspaces.actions.checkpoints:answer", True),
        ("workspaces.actions.checkpoints:answer", False),
        ("workspaces.actions.detections:respond", True),
        ("workspaces.actions.detections:respond", False),
        ("workspaces.actions.checkpoints:settle_step", False),
    ],
)
def test_a_worker_that_dies_around_a_rung_leaves_it_done_once(place: str, before: bool) -> None:
    rung = 1 if "respond" in place else 3
    task = work(killed_at(loop_task(3), place, before=before, time=rung))
    assert task.status == TaskStatus.SUCCEEDED
    assert (len(nudges(task)), rungs(task), incident(task).count) == (1, ["nudged"], 3)


def test_a_worker_that_dies_after_it_asked_asks_once() -> None:
    task = work(killed_at(loop_task(9), "workspaces.actions.checkpoints:settle_step", before=False, time=5))
    assert task.status == TaskStatus.WAITING
    assert Escalation.objects.filter(task=task).count() == 1
    assert rungs(task) == ["nudged", "escalated"]


def test_a_rollback_ends_the_incident_and_counts_nothing_of_it() -> None:
    task = work(loop_task(9))
    first = Checkpoint.objects.filter(task=task, step_number=2).get()
    task = roll_back(first.pk, reason="from before", actor=task.created_by)
    assert incident(task).state == "resolved"
    task = resume_task(work(task).pk, actor=task.created_by)
    task = work(task, until=lambda t: t.steps_taken == 7)
    assert Incident.objects.filter(task=task).count() == 1  # steps 3 and 4 of the new line: two, not four
    task = work(task, until=lambda t: t.steps_taken == 8)
    assert Incident.objects.filter(task=task).count() == 2
    assert [place["step"] for place in Incident.objects.latest("pk").evidence] == [3, 4, 5]


def test_a_fork_begins_without_its_origins_incidents() -> None:
    task = work(loop_task(9))
    second = Checkpoint.objects.filter(task=task, step_number=2).get()
    forked = work(fork(second.pk, reason="try", actor=task.created_by), until=lambda t: t.steps_taken == 2)
    assert not Incident.objects.filter(task=forked).exists()
    assert incident(task).state == "open"
    forked = work(forked)
    assert incident(forked).first_step == 3


def test_a_loop_across_workers_is_one_loop() -> None:
    task = killed_at(loop_task(3), "workspaces.actions.model_calls:store_reply", before=False, time=2)
    task = work(killed_at(task, "workspaces.actions.calls:store_judged", before=False, time=2))
    assert incident(task).count == 3


def test_an_outage_of_the_provider_is_not_the_agents_loop() -> None:
    task = scripted_task(
        "replies: [{fault: {kind: auth, times: 4}, calls: [{name: finish, arguments: {summary: done}}]}]"
    )
    task = work(task)
    for _ in range(4):
        answer_escalation(question(task).pk, decision=Decision.CONTINUE, actor=task.created_by)
        task = work(task)
    assert task.status == TaskStatus.SUCCEEDED
    assert not Incident.objects.filter(task=task).exists()


def test_an_allowance_that_refuses_many_tasks_is_a_storm_in_each() -> None:
    workspace = make_workspace(make_user())
    script = "replies: [{fault: {kind: rate_limit, retry_after_s: 60}}]"
    version = scripted_profile(workspace.owner, script, detectors={"retries_per_minute": 3})
    tasks = [
        create_task(workspace=workspace, profile_version=version, instruction="Work.", actor=workspace.owner)
        for _ in range(3)
    ]
    for task in tasks:
        task.workspace.refresh_from_db()
        type(task.workspace).objects.filter(pk=workspace.pk).update(held_by=None)
        work(task, tampered=True)
        quota_frees()  # else the pool lets no other call through
    assert not Incident.objects.filter(task__in=tasks[:2]).exists()
    found = incident(tasks[2])
    assert (found.kind, found.pattern, found.count) == ("storm", "retry_storm", 3)
    assert "2 other tasks" in found.responses[0]["words"]


def test_many_forks_of_one_task_within_a_minute_are_a_storm() -> None:
    script = "replies: [{calls: [{name: finish, arguments: {summary: ok}}]}]"
    task = work(scripted_task(script, detectors={"forks_per_minute": 3}))
    first = Checkpoint.objects.filter(task=task).order_by("seq")[0]
    for _ in range(2):
        fork(first.pk, reason="try", actor=task.created_by, hold=True)
    assert not Incident.objects.exists()
    fork(first.pk, reason="try", actor=task.created_by, hold=True)
    found = incident(task)
    assert (found.kind, found.pattern, found.count) == ("storm", "fan_out", 3)
    assert work(task).status == "succeeded"


def test_a_context_that_is_full_is_an_incident_with_its_question() -> None:
    task = work(
        scripted_task("replies: [{calls: [{name: finish, arguments: {summary: ok}}]}]", context_window_tokens=4_200)
    )
    found = incident(task)
    assert (found.kind, found.rung, question(task).incident) == ("context_full", "escalated", found)
