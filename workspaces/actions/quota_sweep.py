"""What time brings to quota pools, and what was missed: once a second by the scheduler, any number may run at once.

Room that a minute's end frees is granted, grants that nobody took up go to others, claims whose task waits no more are
withdrawn, and calls whose worker is gone give back what was held for them.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from workspaces.domain.quotas import Use
from workspaces.domain.states import ClaimState, ModelCallStatus, TaskStatus, WaitingFor
from workspaces.models import ModelCall, QuotaClaim, Task
from workspaces.queries.database import is_away
from workspaces.queries.quota_outlook import fallback_now, outlook

from .model_calls import drop_unfinished
from .pen import writing
from .quota_book import open_book
from .quota_turns import look_at_pool
from .quota_wakes import wake_granted
from .quotas import pool_of, told
from .tasks import void_lease
from .waits import wake

logger = logging.getLogger(__name__)

MOST = 200
TELL_FOR_S = 0.5  # of one look: of a long queue the rest are told at the next, so that nothing else waits for it
ABANDONED_AFTER_S = 5.0  # after its lease ran out: a worker cut off for a moment still renews it

# Claims that are not what they say: a grant that nobody took up, a place of a task that waits for something else.
_STALE = """
SELECT c.pool_id, c.task_id FROM workspaces_quotaclaim c JOIN workspaces_task t ON t.id = c.task_id
 WHERE c.state = 'granted' AND (c.expires_at <= statement_timestamp()
           OR t.status NOT IN ('waiting', 'queued', 'running', 'pausing'))
    OR c.state = 'waiting' AND NOT (t.status = 'waiting' AND t.waiting_for = 'quota')
"""


def look(*, abandoned_after_s: float = ABANDONED_AFTER_S) -> int:
    """One look at all pools; returns how many tasks were woken.

    A pool whose books are wrong does not keep the others from being looked at: what it raised is raised at the end.
    """
    drop_abandoned(after_s=abandoned_after_s)
    stale: dict[int, list[int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_STALE)
        for pool, task in cursor.fetchall():
            stale.setdefault(pool, []).append(task)
    queues = QuotaClaim.objects.filter(state=ClaimState.WAITING.value).values_list("pool", flat=True).distinct()
    woken = 0
    wrong: Exception | None = None
    for pool in sorted({*stale, *queues}):
        try:
            woken += wake_granted(look_at_pool(pool, stale.get(pool, [])))
        except Exception as error:
            if is_away(error):
                raise
            wrong = error
    woken += wake_granted(_granted_and_asleep())
    if wrong is not None:
        raise wrong
    return woken + _tell_anew()


def drop_abandoned(*, after_s: float) -> int:
    """Model calls whose worker is gone, and whose task nobody may take up for long: how many.

    The task's fence goes up: a worker that comes back after all can write no more.
    """
    gone = Q(task__lease_until=None) | Q(task__lease_until__lt=Now() - timedelta(seconds=after_s))
    running = ModelCall.objects.filter(gone, status=ModelCallStatus.RUNNING.value)
    tasks = sorted(set(running.values_list("task", flat=True)[:MOST]))
    for task_id in tasks:
        with writing(task_id) as pen:
            lease = pen.task.lease_until
            if lease is None or lease < pen.now - timedelta(seconds=after_s):
                void_lease(pen)
                drop_unfinished(pen, why="its worker ended")
    return len(tasks)


def _granted_and_asleep() -> list[int]:
    waiting = Q(task__status=TaskStatus.WAITING.value, task__waiting_for=WaitingFor.QUOTA.value)
    granted = QuotaClaim.objects.filter(waiting, state=ClaimState.GRANTED.value)
    return list(granted.order_by("granted_at").values_list("task", flat=True)[:MOST])


def _tell_anew() -> int:
    """Tasks that wait longer than they were told: why, and until when. Or they are woken, where their profile's
    fallback can answer by now: how many.
    """
    woken = 0
    queued = QuotaClaim.objects.filter(task=OuterRef("pk"), state=ClaimState.WAITING.value)
    late = Task.objects.filter(
        Exists(queued),
        status=TaskStatus.WAITING.value,
        waiting_for=WaitingFor.QUOTA.value,
        waiting_until__lte=Now(),
    )
    began = time.monotonic()
    for number, task_id in enumerate(late.order_by("waiting_until").values_list("pk", flat=True)[:MOST]):
        if number and time.monotonic() - began >= TELL_FOR_S:
            break
        with writing(task_id) as pen:
            task = pen.task
            if task.status != TaskStatus.WAITING.value or task.waiting_for != WaitingFor.QUOTA.value:
                continue
            claim = QuotaClaim.objects.filter(task=task, state=ClaimState.WAITING.value).first()
            if claim is None or task.waiting_until is None or task.waiting_until > pen.now:
                continue
            book = open_book(claim.pool_id, user=claim.user_id, task=task_id)
            place = book.places.get(task_id)
            if place is not None and place.state is ClaimState.WAITING:
                reason, until = told(book, place.claim)
                pen.set(waiting_reason=reason, waiting_until=until)
                if why := _fallback_can_answer(task, claim):
                    wake(pen, why=f"its profile's fallback can answer: {why}")
                    woken += 1
    return woken


def _fallback_can_answer(task: Task, claim: QuotaClaim) -> str:
    """Why it is to, where its own pool lets it at once; else ""."""
    use = Use(1, claim.input_tokens, claim.output_tokens)
    found = fallback_now(task.profile_version, claim.pool_id, task.pk, use)
    if found is None:
        return ""
    version, why = found
    return why if outlook(pool_of(version, version.model), task.pk, use).expected_wait_s == 0 else ""
