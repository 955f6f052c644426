"""A deploy: this code goes on while a newer version has already added to the database's tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.apps import apps
from django.db import connection

from tests.harness import scripted_task, work
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import pause_task, resume_task, send_message
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Checkpoint

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def newer() -> Iterator[None]:
    """What an additive migration of the next version may do to every table of ours."""
    tables = [model._meta.db_table for model in apps.get_app_config("workspaces").get_models(include_auto_created=True)]
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f'ALTER TABLE "{table}" ADD COLUMN newer_null text, ADD COLUMN newer_set int DEFAULT 7')
        cursor.execute("CREATE TABLE workspaces_newer (id serial, task_id bigint REFERENCES workspaces_task)")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE workspaces_newer")
            for table in tables:
                cursor.execute(f'ALTER TABLE "{table}" DROP COLUMN newer_null, DROP COLUMN newer_set')


def test_every_move_of_a_task_works_beside_added_columns_and_tables() -> None:
    task = scripted_task(
        """
        replies:
          - calls: [{name: write_file, arguments: {path: a.txt, content: one}}]
          - calls: [{name: ask_operator, arguments: {question: "Which?"}}]
          - calls: [{name: finish, arguments: {summary: done}}]
        """
    )
    actor = task.created_by
    task = work(task, until=lambda task: task.steps_taken == 1)
    with newer():  # while connections are open that know the old tables
        pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="look", actor=actor)
        send_message(task.pk, text="Go on.", actor=actor)
        checkpoint = Checkpoint.objects.filter(task=task, step_number=1).get()
        other = fork(checkpoint.pk, reason="try", actor=actor)
        roll_back(checkpoint.pk, reason="again", actor=actor)
        task = work(task)
        resume_task(task.pk, reason="go", actor=actor)
        assert work(task).waiting_for == "operator"
        assert work(other).waiting_for == "operator"
        assert TaskStatus(task.status) is TaskStatus.WAITING
