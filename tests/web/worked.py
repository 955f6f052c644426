"""Tasks that a real engine took somewhere, for the tests of the task page."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from tests.harness import scripted_profile, work
from tests.web.people import Desk
from workspaces.actions.tasks import create_task
from workspaces.domain.events import EventKind
from workspaces.models import Event, Task

SCENARIO = """
    replies:
      - text: I begin with a file.
        calls: [{name: write_file, arguments: {path: hello.txt, content: "one\\n"}}]
      - calls: [{name: edit_file, arguments: {path: hello.txt, old: one, new: two}}]
      - calls: [{name: shell, arguments: {command: "mkdir data; head -c 64 /dev/zero > data/noise.bin; seq 1 2000"}}]
      - calls: [{name: wrte_file, arguments: {path: x}}]
      - calls: [{name: note, arguments: {section: plan, text: "first, second"}}]
      - text: All done.
        calls: [{name: finish, arguments: {summary: "hello.txt says two"}}]
"""


def finished_task(desk: Desk) -> Task:
    """Six steps: a file written, edited, a long output, a call that does not exist, a note, the end."""
    version = scripted_profile(desk.owner, SCENARIO)
    task = create_task(
        workspace=desk.workspace, profile_version=version, instruction="Greet.", actor=desk.owner, title="Greet"
    )
    return work(task)


def with_many_events(task: Task, count: int) -> Task:
    """`count` more events of mixed kinds, without the work: for what only counts and reads."""
    start = task.last_seq
    kinds = [
        (EventKind.STEP_STARTED, {"step": 1}),
        (EventKind.MODEL_REPLIED, {"text": "a reply " * 20, "calls": [{"name": "shell", "arguments": "{}"}]}),
        (EventKind.CALL_JUDGED, {"name": "shell", "arguments": '{"command": "ls"}', "verdict": "allow"}),
        (EventKind.CALL_FINISHED, {"name": "shell", "result_class": "ok", "result": "line\n" * 40, "duration_s": 1}),
        (EventKind.CHECKPOINT_SAVED, {"added_bytes": 10, "files": 3, "duration_s": 0.01, "pending": 0}),
    ]
    now = timezone.now()
    Event.objects.bulk_create(
        Event(
            task=task,
            seq=start + n,
            branch_number=1,
            step_number=n // 5 + 1,
            kind=kinds[n % 5][0].value,
            data=kinds[n % 5][1],
            at=now + timedelta(milliseconds=n),
            previous_hash="",
            hash="",
        )
        for n in range(1, count + 1)
    )
    Task.objects.filter(pk=task.pk).update(last_seq=start + count)
    task.refresh_from_db()
    return task
