"""Many workers at one pool: no limit is passed, nothing is granted twice, nothing is lost."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connection

from tests.harness import check_history, make_user, quota_pool, scripted_profile
from tests.quota_calls import Caller, caller
from workspaces.actions import quota_sweep
from workspaces.domain.quotas import PoolState
from workspaces.domain.states import TaskStatus
from workspaces.models import ModelCall

pytestmark = pytest.mark.django_db(transaction=True)
THREADS, CALLS, REQUESTS, AT_ONCE = 16, 6, 7, 3  # from eight requests a minute on they are given out evenly


class Flight:
    """How many calls were under way at once, as the callers see it."""

    def __init__(self) -> None:
        self.now = self.most = self.made = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.made += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


def test_sixteen_threads_never_pass_a_limit_and_the_books_are_even_afterwards() -> None:
    users = [make_user() for _ in range(4)]
    version = scripted_profile(users[0], "replies: [{text: x}]")
    pool = quota_pool(version, requests_per_minute=REQUESTS, concurrent_calls=AT_ONCE)
    callers = [caller(version, users[at % 4]) for at in range(THREADS)]
    flight, stop, problems = Flight(), threading.Event(), []

    def ask(each: Caller) -> None:
        try:
            for at in range(CALLS):
                call = each.intend(100 + at, 50)
                while call is None:
                    if stop.wait(0.01):
                        return
                    if each.go_on():
                        call = each.intend(100 + at, 50)
                with flight:
                    time.sleep(0.002)
                each.reply(call, 90, 20 + at)
        except Exception as problem:  # noqa: BLE001 - told by the test
            problems.append(problem)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=(each,)) for each in callers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while flight.made < REQUESTS and time.monotonic() < deadline and not problems:
        quota_sweep.look()
        time.sleep(0.05)
    for _ in range(5):  # nothing comes of looking again
        quota_sweep.look()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not problems, problems
    assert (flight.made, flight.most <= AT_ONCE) == (REQUESTS, True)
    assert ModelCall.objects.count() == REQUESTS
    pool.refresh_from_db()
    state = PoolState.from_json(pool.state)
    assert (state.in_flight, state.held_output, state.requests) == (0, 0, REQUESTS)
    assert state.input_tokens == 90 * REQUESTS
    waiting = [each for each in callers if each.status() is TaskStatus.WAITING]
    assert state.waiting == len(waiting) > 0
    for each in callers[:2]:
        check_history(each.task)
