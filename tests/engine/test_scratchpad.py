"""The scratchpad through the engine: every version is kept on its line, and its head is in every request."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from tests.harness import check_history, events, scripted_task, work
from workspaces.actions.errors import Refused
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.scratchpad import restore_note, write_note
from workspaces.models import AuditEntry, Checkpoint, ScratchpadEdit, Task
from workspaces.queries.contexts import build, frame_of
from workspaces.queries.profiles import tools_of
from workspaces.queries.scratchpad import pad_at, versions_of

pytestmark = pytest.mark.django_db(transaction=True)

NOTES = """
    replies:
      - calls: [{name: note, arguments: {section: plan, text: one}}]
      - calls: [{name: note, arguments: {section: attempts, attempt: pip, outcome: failed, why: offline}}]
      - calls: [{name: note, arguments: {section: plan, text: two}}]
      - calls: [{name: note, arguments: {section: attempts, attempt: apt, outcome: worked}}]
      - calls: [{name: note, arguments: {section: attempts, read: true}}]
      - calls: [{name: ask_operator, arguments: {question: "go on?"}}]
"""
ATTEMPTS = "- failed: pip\n  why: offline\n- worked: apt"


def noted() -> Task:
    return work(scripted_task(NOTES))


def test_the_pad_of_every_moment_can_be_read_also_on_a_left_branch() -> None:
    task = noted()
    assert task.scratchpad == {"plan": "two", "attempts": ATTEMPTS}
    first = task.branch
    assert first is not None
    for checkpoint in Checkpoint.objects.filter(task=task):
        assert pad_at(first, checkpoint.seq) == checkpoint.scratchpad
    second = Checkpoint.objects.get(task=task, step_number=2, branch=first)
    roll_back(second.pk, reason="again", actor=task.created_by)
    task = work(task)
    assert task.branch is not None
    assert task.scratchpad == pad_at(task.branch) == {"plan": "one", "attempts": "- failed: pip\n  why: offline"}
    assert pad_at(first) == {"plan": "two", "attempts": ATTEMPTS}
    write_note(task.pk, section="Exit condition", text="tests pass", actor=task.created_by)
    forked = fork(second.pk, reason="elsewhere", actor=task.created_by, hold=True)
    assert forked.branch is not None
    assert pad_at(forked.branch) == second.scratchpad, "what came later on the other branch is not on this line"
    check_history(forked)
    check_history(task)


def test_a_version_that_was_replaced_is_shown_with_its_difference_and_can_be_taken_again() -> None:
    task = noted()
    assert task.branch is not None
    found, count = versions_of(task.branch, "plan")
    assert [(version.edit.text, version.edit.by) for version in found] == [("two", "agent"), ("one", "agent")]
    assert count == 2
    assert (found[0].added_lines, found[0].removed_lines) == (1, 1)
    with pytest.raises(Refused, match="Say why"):
        restore_note(task.pk, seq=found[1].edit.seq, section="plan", reason=" ", actor=task.created_by)
    with pytest.raises(Refused, match="no version"):
        restore_note(task.pk, seq=found[1].edit.seq + 1, section="plan", reason="better", actor=task.created_by)
    restore_note(task.pk, seq=found[1].edit.seq, section="plan", reason="better", actor=task.created_by)
    task.refresh_from_db()
    assert task.scratchpad["plan"] == "one"
    assert events(task, "note.written")[-1]["restored"] == found[1].edit.seq
    assert AuditEntry.objects.get(task=task, action="task.note_restore").reason == "better"
    assert versions_of(task.branch, "plan", limit=1)[0][0].edit.by == "operator"
    with pytest.raises(Refused, match="already"):
        restore_note(task.pk, seq=found[1].edit.seq, section="plan", reason="better", actor=task.created_by)
    with pytest.raises(Refused, match="no section"):
        write_note(task.pk, section="somewhere else", text="x", actor=task.created_by)
    check_history(task)


def test_versions_cannot_be_changed_and_a_pad_that_they_do_not_tell_is_found() -> None:
    task = noted()
    with pytest.raises(IntegrityError), transaction.atomic():
        ScratchpadEdit.objects.filter(task=task).update(text="x")
    with pytest.raises(IntegrityError), transaction.atomic():
        ScratchpadEdit.objects.filter(task=task).delete()
    Task.objects.filter(pk=task.pk).update(scratchpad={"plan": "three"})
    with pytest.raises(AssertionError, match="scratchpad"):
        check_history(task)


def test_the_head_of_a_long_scratchpad_is_in_the_request_and_the_rest_can_be_read() -> None:
    task = noted()
    assert task.branch is not None
    reading = [data["result"] for data in events(task, "call.finished") if data["name"] == "note"][-1]
    assert reading == ATTEMPTS
    write_note(task.pk, section="plan", text="p" * 30_000, actor=task.created_by)
    task.refresh_from_db()
    frame = frame_of(tools_of(task.profile_version))
    made = build(task.branch, task.profile_version, frame, as_of=task.last_seq, scratchpad=task.scratchpad)
    system = made.request.messages[0].content
    assert "- worked: apt" in system
    assert 'note(section="plan", read=true)' in system
    assert len(system) < 12_000


def test_what_was_noted_before_there_were_versions_becomes_versions() -> None:
    """Long texts as the checkpoints and the task hold them; on every branch the pad of every checkpoint."""
    task = noted()
    long = "word " * 3_000
    write_note(task.pk, section="notes", text=long, actor=task.created_by)
    second = Checkpoint.objects.get(task=task, step_number=2)
    roll_back(second.pk, reason="again", actor=task.created_by)
    task = work(task)
    write_note(task.pk, section="notes", text=long, actor=task.created_by)
    task.refresh_from_db()
    assert task.branch is not None
    assert len(events(task, "note.written")[-1]["text"]) < len(task.scratchpad["notes"])
    before = set(ScratchpadEdit.objects.filter(task=task).values_list("seq", "section", "by", "actor"))
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE workspaces_scratchpadedit")
    importlib.import_module("workspaces.migrations.0014_scratchpad_versions").versions_from_events(apps, None)
    assert set(ScratchpadEdit.objects.filter(task=task).values_list("seq", "section", "by", "actor")) == before
    assert pad_at(task.branch) == task.scratchpad
    for checkpoint in Checkpoint.objects.filter(task=task).select_related("branch"):
        assert pad_at(checkpoint.branch, checkpoint.seq) == checkpoint.scratchpad
    check_history(task)
