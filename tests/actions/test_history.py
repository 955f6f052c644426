"""Invariants of history: no gaps, a chain of hashes, no rewriting, and a reason for every wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from tests.harness import (
    add_member,
    check_history,
    make_user,
    make_workspace,
    scripted_profile,
    scripted_task,
    work,
)
from workspaces.actions.errors import Refused
from workspaces.actions.latches import place_latch
from workspaces.actions.pen import writing
from workspaces.actions.scratchpad import write_note
from workspaces.actions.tasks import cancel_task, create_task, pause_task, send_message
from workspaces.domain.effects import canonical_json
from workspaces.domain.events import GENESIS, EventKind, event_hash
from workspaces.domain.roles import Role
from workspaces.domain.states import PauseMode
from workspaces.models import AuditEntry, Event, Message, ModelCall, ProfileVersion, Task, UsageRecord

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = """
replies:
  - calls: [{name: note, arguments: {section: plan, text: "naïve – 1.50 € \\U0001F680"}}]
    usage: {input: 100, output: 20, cached_input: 30, cache_write: 7, reasoning: 5}
  - calls: [{name: finish, arguments: {summary: done}}]
    usage: {input: 50, output: 9}
"""


def done_task() -> Task:
    return work(scripted_task(STEPS, input_usd_per_mtok="3", output_usd_per_mtok="15"))


@pytest.mark.parametrize("number", [1e16, -1e16, 1.5e300, 123456789012345678.0, -0.0, 1e-7, 5e-324, 0.1, 1.0, 10**30])
def test_a_number_has_the_same_hash_before_and_after_it_was_stored(number: float) -> None:
    task = done_task()
    with writing(task.pk) as pen:
        pen.event(EventKind.LIMIT_RAISED, what="numbers", deep=[{"number": number}])
    stored = Event.objects.get(task=task, seq=task.last_seq + 1).data
    assert canonical_json(stored) == canonical_json({"what": "numbers", "deep": [{"number": number}]})
    check_history(task)


def test_the_chain_of_hashes_can_be_computed_again_from_what_is_stored() -> None:
    trace = list(Event.objects.filter(task=done_task()).order_by("seq"))
    assert trace[0].previous_hash == GENESIS
    for event in trace:
        assert event.hash == event_hash(
            event.previous_hash,
            seq=event.seq,
            kind=event.kind,
            branch=event.branch_number,
            step=event.step_number,
            actor=str(event.actor_id) if event.actor_id else "",
            at=event.at,
            data=event.data,
        ), event
    assert all(before.hash == after.previous_hash for before, after in pairwise(trace))


@pytest.mark.parametrize("model", [Event, Message, UsageRecord, AuditEntry])
def test_the_database_refuses_to_rewrite_history(model: type[Event]) -> None:
    done_task()
    column = {Event: "kind", Message: "content", UsageRecord: "unit", AuditEntry: "action"}[model]  # type: ignore[index]
    assert model.objects.exists()
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        model.objects.update(**{column: "forged"})
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")


def test_a_profile_version_never_changes() -> None:
    version = scripted_profile(make_user(), STEPS)
    with pytest.raises(IntegrityError, match="append-only"):
        ProfileVersion.objects.filter(pk=version.pk).update(model="other")


def test_many_writers_at_once_leave_no_gap() -> None:
    task = scripted_task(STEPS)

    def write() -> None:
        try:
            for _ in range(5):
                send_message(task.pk, text="hello", actor=task.created_by)
        finally:
            connection.close()

    writers = [threading.Thread(target=write) for _ in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    task.refresh_from_db()
    seqs = list(Event.objects.filter(task=task).order_by("seq").values_list("seq", flat=True))
    assert seqs == list(range(1, 42))
    assert task.last_seq == 41


def test_a_failed_action_leaves_nothing() -> None:
    task = scripted_task(STEPS)
    before = task.last_seq
    with pytest.raises(ZeroDivisionError), writing(task.pk) as pen:
        pen.event(EventKind.TASK_QUEUED, reason=str(1 / (pen.event(EventKind.TASK_QUEUED, reason="never") * 0)))
    task.refresh_from_db()
    assert (task.last_seq, Event.objects.filter(task=task).count()) == (before, before)


@pytest.mark.parametrize("missing", ["waiting_for", "waiting_reason", "waiting_since", "waiting_until"])
def test_the_database_refuses_a_wait_that_does_not_say_what_for(missing: str) -> None:
    task = scripted_task(STEPS)
    now = timezone.now()
    fields = {"waiting_for": "quota", "waiting_reason": "429", "waiting_since": now, "waiting_until": now}
    fields[missing] = None if missing.endswith(("since", "until")) else ""
    with pytest.raises(IntegrityError, match="task_waiting_says_for_what"):
        Task.objects.filter(pk=task.pk).update(status="waiting", **fields)


def test_usage_records_equal_the_model_calls_usage_priced_once() -> None:
    task = done_task()
    calls = ModelCall.objects.filter(task=task)
    booked_units = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_input_tokens", "cache_write_tokens")
    for unit in booked_units:
        used = sum(getattr(call, unit) or 0 for call in calls)
        if unit == "output_tokens":
            used -= sum(call.reasoning_tokens or 0 for call in calls)
        assert sum(row.quantity for row in UsageRecord.objects.filter(task=task, unit=unit)) == used, unit
    booked = sum(row.cost_usd or 0 for row in UsageRecord.objects.filter(task=task))
    assert booked == sum(call.cost_usd or 0 for call in calls) == task.cost_usd
    assert float(task.cost_usd) == pytest.approx((137 + 50) * 3e-6 + 29 * 15e-6)
    assert set(UsageRecord.objects.values_list("user", flat=True)) == {task.created_by_id}


def test_usage_is_booked_to_whoever_began_the_task_and_an_unknown_price_is_counted() -> None:
    owner, member = make_user(), make_user()
    workspace = make_workspace(owner)
    add_member(workspace, member, Role.OPERATOR)
    version = scripted_profile(owner, STEPS)
    task = work(create_task(workspace=workspace, profile_version=version, instruction="Go.", actor=member))
    assert set(UsageRecord.objects.values_list("user", flat=True)) == {member.pk}
    assert (task.unpriced_calls, task.cost_usd) == (2, 0)


def test_text_that_no_database_holds_is_replaced_and_kept() -> None:
    user = make_user()
    task = scripted_task(STEPS, workspace=make_workspace(user))
    send_message(task.pk, text="nul \x00 half \ud800 end", actor=user)
    stored = Message.objects.filter(task=task).order_by("seq").last()
    assert stored is not None
    assert stored.content.endswith("nul \N{REPLACEMENT CHARACTER} half \N{REPLACEMENT CHARACTER} end")


def test_words_that_no_page_can_bear_are_refused() -> None:
    task = scripted_task(STEPS)
    actor, huge = task.created_by, "x" * 3_000_000
    before = task.last_seq
    orders: list[Callable[[], object]] = [
        lambda: pause_task(task.pk, mode=PauseMode.NOW, reason=huge, actor=actor),
        lambda: cancel_task(task.pk, reason=huge, actor=actor),
        lambda: send_message(task.pk, text=huge, actor=actor),
        lambda: write_note(task.pk, section="plan", text=huge, actor=actor),
        lambda: write_note(task.pk, section=huge, text="x", actor=actor),
        lambda: place_latch(mode=PauseMode.NOW, reason=huge, actor=actor, workspace=task.workspace),
    ]
    for order in orders:
        with pytest.raises(Refused, match="3,000,000 characters; at most"):
            order()
    task.refresh_from_db()
    assert task.last_seq == before
