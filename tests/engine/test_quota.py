"""A task meets its provider's pool: what it is told, who goes first, what comes back, whatever happens meanwhile."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.utils import timezone

from tests.engine.moments import killed_at
from tests.harness import (
    check_history,
    events,
    eventually,
    kinds,
    make_user,
    make_workspace,
    minute_passes,
    quota_frees,
    quota_pool,
    scripted_profile,
    scripted_task,
    work,
)
from tests.providers.servers import KEY, MODEL, Plan, Server
from tests.quota_calls import caller
from workspaces.actions import quota_sweep
from workspaces.actions.profiles import create_profile
from workspaces.actions.restored import task_restored
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import cancel_task, create_task, pause_task
from workspaces.domain.quotas import PoolState
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.models import Checkpoint, ModelCall, QuotaClaim, QuotaMinute, QuotaNotice, QuotaPool, Task, User

pytestmark = pytest.mark.django_db(transaction=True)

QUIET = {"detectors": {"observe_only": True}}
STEPS = """
replies:
  - repeat: 4
    calls: [{name: note, arguments: {section: notes, text: '{{index}}'}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
SENT = "workspaces.engine.think:provider_of"


def state_of(pool: QuotaPool) -> PoolState:
    pool.refresh_from_db()
    return PoolState.from_json(pool.state)


def held_by(pool: QuotaPool) -> tuple[int, int, int]:
    """Calls in flight, output held, how many wait."""
    state = state_of(pool)
    return state.in_flight, state.held_output, state.waiting


def tasks_of(user: User, version: Any, count: int) -> list[Task]:
    return [
        create_task(workspace=make_workspace(user), profile_version=version, instruction="Work.", actor=user)
        for _ in range(count)
    ]


def test_a_task_without_room_says_which_limit_which_pool_and_when_and_goes_on() -> None:
    task = scripted_task(STEPS, **QUIET)
    pool = quota_pool(task.profile_version, requests_per_minute=2)
    task = work(task)
    assert (task.status, task.waiting_for, task.steps_taken) == ("waiting", "quota", 2)
    assert "the pool: 2 of 2 requests a minute are used; room in" in task.waiting_reason
    assert task.waiting_until is not None
    assert 30 < (task.waiting_until - timezone.now()).total_seconds() < 65
    assert kinds(task)[-1] == "task.waiting"
    assert held_by(pool) == (0, 0, 1)
    assert minute_passes() == 1
    task = work(task)
    assert (task.status, task.steps_taken) == ("waiting", 4)
    waited = ModelCall.objects.filter(task=task).order_by("pk").values_list("waited_s", flat=True)
    assert [seconds is not None for seconds in waited] == [False, False, True, False]
    assert QuotaMinute.objects.get(pool=pool, waits__gt=0, waited_s__gt=0).calls >= 2
    assert "step.started" not in kinds(task)[-2:], "no step is opened before it is admitted"


def test_a_user_with_four_tasks_does_not_starve_one_with_one() -> None:
    many, one = make_user(), make_user()
    version = scripted_profile(many, STEPS, **QUIET)
    quota_pool(version, requests_per_minute=2)
    tasks = [*tasks_of(many, version, 4), *tasks_of(one, version, 1)]
    for _ in range(5):
        for task in tasks:
            work(task)
        minute_passes()
    taken = [Task.objects.get(pk=task.pk).steps_taken for task in tasks]
    assert taken[-1] >= 3, taken
    assert sum(taken[:4]) >= 4, taken
    assert max(taken[:4]) - min(taken[:4]) <= 2, f"between a user's tasks too: {taken}"


def test_what_a_cancelled_or_paused_or_rolled_back_task_had_at_a_pool_comes_back() -> None:
    user = make_user()
    version = scripted_profile(user, STEPS, **QUIET)
    pool = quota_pool(version, requests_per_minute=1)
    first, cancelled, paused, back = tasks_of(user, version, 4)
    work(first)
    for task in (cancelled, paused, back):
        assert work(task).waiting_for == "quota"
    assert held_by(pool) == (0, 0, 4)  # the first one as well, at its next step
    cancel_task(cancelled.pk, reason="no", actor=user)
    pause_task(paused.pk, mode=PauseMode.BOUNDARY, reason="look", actor=user)
    roll_back(Checkpoint.objects.get(task=back).pk, reason="again", actor=user)
    quota_sweep.look()
    assert held_by(pool) == (0, 0, 1)
    minute_passes()  # granted, and its task is queued
    assert held_by(pool) == (1, 4096, 0)
    cancel_task(first.pk, reason="no", actor=user)
    quota_sweep.look()
    assert held_by(pool) == (0, 0, 0)
    assert state_of(pool).requests == 0, "a grant that nobody took up used nothing"
    for task in (first, cancelled, paused, back):
        check_history(task)


def test_a_grant_that_nobody_takes_up_goes_to_the_next() -> None:
    user = make_user()
    version = scripted_profile(user, STEPS, **QUIET)
    pool = quota_pool(version, requests_per_minute=1)
    tasks = tasks_of(user, version, 3)
    for task in tasks:
        work(task)
    minute_passes()
    lost = QuotaClaim.objects.get(state="granted")
    QuotaClaim.objects.filter(pk=lost.pk).update(expires_at=timezone.now())
    assert quota_sweep.look() == 1
    assert QuotaClaim.objects.get(state="granted").task_id != lost.task_id
    assert held_by(pool)[0] == 1


@pytest.mark.parametrize("place", [SENT, "workspaces.actions.model_calls:store_reply"])
def test_the_lease_of_a_dead_worker_comes_back_exactly_once(place: str) -> None:
    task = scripted_task(STEPS, **QUIET)
    pool = quota_pool(task.profile_version, concurrent_calls=1)
    other = tasks_of(task.created_by, task.profile_version, 1)[0]
    task = killed_at(task, place)
    assert held_by(pool)[:2] == (1, 4096)
    assert work(other).waiting_for == "quota"
    quota_sweep.look(abandoned_after_s=0)
    other.refresh_from_db()
    assert (other.status, held_by(pool)) == (TaskStatus.QUEUED, (1, 4096, 0))
    assert list(ModelCall.objects.filter(task=task).values_list("status", flat=True)) == ["dropped"]
    check_history(task)
    quota_sweep.look(abandoned_after_s=0)
    assert held_by(pool) == (1, 4096, 0), "once"
    assert work(other).status == TaskStatus.SUCCEEDED
    assert work(task).status == TaskStatus.SUCCEEDED
    assert held_by(pool) == (0, 0, 0)


@pytest.mark.parametrize("before", [True, False])
def test_a_worker_that_dies_in_the_middle_of_admission_or_settlement_holds_nothing_twice(before: bool) -> None:
    task = scripted_task(STEPS, **QUIET)
    pool = quota_pool(task.profile_version, concurrent_calls=1)
    for time_ in (1, 2):
        task = killed_at(task, "workspaces.actions.quota_queue:write", before=before, time=time_)
        check_history(task)
    task = work(task)
    assert (task.status, held_by(pool)) == (TaskStatus.SUCCEEDED, (0, 0, 0))


def test_a_restored_installation_has_no_ghost_of_a_lease() -> None:
    task = scripted_task(STEPS, **QUIET)
    pool = quota_pool(task.profile_version)
    killed_at(task, SENT)
    assert held_by(pool)[0] == 1
    task_restored(task.pk, made_at="yesterday", snapshot=None, undone=[])
    assert held_by(pool) == (0, 0, 0)
    check_history(task)


def http_profile(user: User, server: Server, **fields: Any) -> Any:
    settings: dict[str, Any] = {"provider": "openai", "model": MODEL, "base_url": server.base_url, "tools": ["finish"]}
    return create_profile(
        name=f"http {time.monotonic()}",
        workspace=None,
        actor=user,
        api_key=KEY,
        **(settings | {"local_allowed": True} | fields),
    )


DONE = Plan(calls=(("c1", "finish", ('{"summary": "done"}',)),), finish="tool_calls")


def test_retry_after_of_a_real_answer_stops_every_task_of_the_pool_until_then_and_not_longer() -> None:
    user = make_user()
    asked_at: list[float] = []
    with Server("openai") as server:
        server.counts = lambda asked: asked_at.append(time.time()) or 10  # type: ignore[func-returns-value]
        server.plans = [Plan(status=429, headers=(("retry-after", "600"),), error={"message": "slow down, A."}), DONE]
        tasks = tasks_of(user, http_profile(user, server), 2) + tasks_of(user, http_profile(user, server), 1)
        work(tasks[0])
        pool = QuotaPool.objects.get()  # the same key typed twice is one account
        assert "A." not in pool.blocked_reason, "all who draw on it read that"
        state = state_of(pool)
        assert 0 <= state.blocked_until - asked_at[0] - 600 < 30
        for task in tasks:
            waiting = work(task)
            assert (waiting.status, waiting.waiting_for) == ("waiting", "quota")
            assert "the provider turned calls away" in waiting.waiting_reason
        assert quota_sweep.look() == 0
        assert len(asked_at) == 1
        state = state_of(pool)
        state.blocked_until = until = time.time() + 1  # nearly ten minutes later
        QuotaPool.objects.filter(pk=pool.pk).update(state=state.as_json())
        eventually(lambda: [quota_sweep.look(), *map(work, tasks)] and _succeeded(tasks) == 3, within_s=60)
        assert len(asked_at) == 4
        assert min(asked_at[1:]) >= until
    assert QuotaNotice.objects.get(pool=pool, kind="refused").data["retry_after_s"] == 600


def _succeeded(tasks: list[Task]) -> int:
    return Task.objects.filter(pk__in=[task.pk for task in tasks], status=TaskStatus.SUCCEEDED.value).count()


def test_limits_are_learned_from_what_a_provider_says_and_never_above_those_set_by_hand() -> None:
    user = make_user()
    with Server("openai") as server:
        told = (("x-ratelimit-limit-requests", "1"), ("x-ratelimit-remaining-requests", "0"))
        server.plans = [Plan(status=429, headers=(*told, ("retry-after", "1")), error={"message": "slow down"})]
        version = http_profile(user, server)
        pool = quota_pool(version, requests_per_minute=50)
        work(tasks_of(user, version, 1)[0])
    pool.refresh_from_db()
    assert pool.learned["requests_per_minute"]["value"] == 1
    assert QuotaNotice.objects.filter(pool=pool, kind="limit_learned").count() == 1


def test_a_circuit_opens_when_answers_do_not_come_and_exactly_one_call_tries_again() -> None:
    version = scripted_profile(make_user(), STEPS)
    pool = quota_pool(version)
    QuotaPool.objects.filter(pk=pool.pk).update(policy={"retry_cap": 1})
    callers = [caller(version) for _ in range(4)]
    for each in callers:
        for again in (False, True):
            call = each.intend(retry=again)
            if call is None:
                break
            each.fail(call, "server")
            QuotaClaim.objects.update(not_before=None)
    pool.refresh_from_db()
    assert pool.circuit == "open"
    assert QuotaNotice.objects.filter(pool=pool, kind="circuit_opened").count() == 1
    for each in callers:
        if each.status() is TaskStatus.RUNNING:
            assert each.intend(retry=True) is None
    state = state_of(pool)
    state.open_until = 0.0
    QuotaPool.objects.filter(pk=pool.pk).update(state=state.as_json())
    assert quota_sweep.look() == 1, "the probe"
    assert quota_sweep.look() == 0
    (probe,) = [each for each in callers if each.go_on()]
    call = probe.intend(retry=True)
    assert call is not None
    probe.reply(call)
    pool.refresh_from_db()
    assert pool.circuit == "closed"
    assert set(QuotaNotice.objects.values_list("kind", flat=True)) >= {"circuit_opened", "half_opened", "closed"}
    for each in callers:
        check_history(each.task)


def fallback_for(user: User, **fields: Any) -> dict[str, Any]:
    other = scripted_profile(user, STEPS, model="other", input_usd_per_mtok=5, output_usd_per_mtok=5, **fields)
    return {"fallback": {"profile_version": other.pk, "when_wait_over_s": 5, "on_circuit_open": True}, **QUIET}


def test_a_fallback_answers_when_the_wait_is_too_long_and_the_record_says_so() -> None:
    user = make_user()
    version = scripted_profile(user, STEPS, **fallback_for(user))
    pool = quota_pool(version, requests_per_minute=2)
    task = work(tasks_of(user, version, 1)[0])
    assert task.status == TaskStatus.SUCCEEDED
    calls = list(ModelCall.objects.filter(task=task).order_by("pk"))
    assert [call.model for call in calls] == ["scripted", "scripted", *["other"] * 3]
    assert [call.version_id == version.fallback["profile_version"] for call in calls] == [False, False, *[True] * 3]
    assert calls[2].pool_id != pool.pk
    assert calls[2].cost_usd, "at the fallback's price"
    told = events(task, "model.called")[2]
    assert "longer than 5 s" in told["why"]
    assert told["fallback"]
    notice = QuotaNotice.objects.filter(pool=pool, kind="fallback").first()
    assert notice is not None
    assert notice.model_call_id == calls[2].pk
    assert held_by(pool) == (0, 0, 0)


def test_who_waits_already_falls_back_when_the_circuit_opens_meanwhile() -> None:
    user = make_user()
    told = fallback_for(user)
    told["fallback"]["when_wait_over_s"] = None
    version = scripted_profile(user, STEPS, **told)
    pool = quota_pool(version, requests_per_minute=1)
    task = work(tasks_of(user, version, 1)[0])
    assert task.waiting_for == "quota"
    Task.objects.filter(pk=task.pk).update(waiting_until=timezone.now())
    assert quota_sweep.look() == 0, "the circuit is closed"
    state = state_of(pool)
    state.circuit, state.open_until = "open", time.time() + 600
    QuotaPool.objects.filter(pk=pool.pk).update(state=state.as_json(), circuit="open")
    Task.objects.filter(pk=task.pk).update(waiting_until=timezone.now())
    assert quota_sweep.look() == 1
    assert work(task).status == TaskStatus.SUCCEEDED
    assert {call.model for call in ModelCall.objects.filter(task=task)} == {"scripted", "other"}
    quota_sweep.look()
    assert held_by(pool) == (0, 0, 0), "its place in the queue is given up"


def test_a_request_that_does_not_fit_the_fallback_waits() -> None:
    user = make_user()
    version = scripted_profile(user, STEPS, **fallback_for(user, context_window_tokens=4_200))
    quota_pool(version, requests_per_minute=1)
    assert work(tasks_of(user, version, 1)[0]).waiting_for == "quota"


def test_a_wait_that_is_longer_than_was_told_is_told_anew() -> None:
    task = scripted_task(STEPS, **QUIET)
    quota_pool(task.profile_version, requests_per_minute=1)
    task = work(task)
    Task.objects.filter(pk=task.pk).update(waiting_until=timezone.now(), waiting_reason="old")
    assert quota_sweep.look() == 0
    task.refresh_from_db()
    assert task.waiting_until is not None
    assert task.waiting_until > timezone.now()
    assert task.waiting_reason != "old"
    assert quota_frees() == 0, "the minute has not passed"


def test_of_a_long_queue_some_are_told_anew_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_sweep, "TELL_FOR_S", 0.0)
    task = scripted_task(STEPS, **QUIET)
    quota_pool(task.profile_version, requests_per_minute=1)
    version = task.profile_version
    tasks = [work(each) for each in (task, *tasks_of(task.created_by, version, 2))]
    assert {each.waiting_for for each in tasks} == {"quota"}
    late = timezone.now()
    Task.objects.filter(pk__in=[each.pk for each in tasks]).update(waiting_until=late, waiting_reason="old")
    for left in (2, 1, 0):
        quota_sweep.look()
        assert Task.objects.filter(waiting_reason="old").count() == left
