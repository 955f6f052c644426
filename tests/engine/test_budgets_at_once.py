"""Many first calls at the same moment, on one small budget: the limit holds, whatever each estimate missed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from agentdesk.database.base import repeating
from tests.engine.test_budgets import account, budget, check_budgets
from tests.harness import eventually, make_user, make_workspace, scripted_profile, somebody_waits_for_a_lock
from workspaces.actions import leases, model_calls, steps
from workspaces.actions.admission import NotAdmitted
from workspaces.actions.budget_settings import create_budget
from workspaces.actions.budget_waits import wake_for_room
from workspaces.actions.tasks import create_task
from workspaces.actions.wishes import Wish
from workspaces.domain.states import BudgetPeriod, BudgetScope, ModelCallPurpose
from workspaces.models import Budget, BudgetAccount, ModelCall, ProfileVersion, Step, Task, User
from workspaces.providers.base import ChatReply, TokenUsage
from workspaces.queries import budgets as query
from workspaces.queries.prices import price_book

pytestmark = pytest.mark.django_db(transaction=True)

AT_ONCE = 64
LIMIT = Decimal("0.50")
EXPECTED = Decimal("0.05")  # 1,000 tokens of prompt and 1,000 of output at 25 USD a million


@pytest.fixture
def version() -> ProfileVersion:
    prices = {"input_usd_per_mtok": "25", "output_usd_per_mtok": "25"}
    return scripted_profile(make_user(), "replies: []", max_output_tokens=1000, **prices)


def new_task(version: ProfileVersion) -> Task:
    owner = version.created_by
    place = owner.owned_workspaces.first() if hasattr(owner, "owned_workspaces") else None
    return create_task(
        workspace=place or make_workspace(owner), profile_version=version, instruction="Ask.", actor=owner
    )


class Asking:
    """A worker with one task, as far as its model call: what the engine does, without a sandbox."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.call: ModelCall | None = None
        self.fence = 0
        self.step = Step()

    def ask(self) -> bool:
        """Whether the call was let in; else the task waits."""
        claim = leases.claim(self.task.pk, worker="test", lease_s=60)
        assert claim is not None
        self.fence = claim.fence
        steps.begin_running(self.task.pk, self.fence, worker="test", previous_owner="")
        self.task.refresh_from_db()
        wish = Wish(self.task.profile_version, "scripted", 1000, 1000)
        self.step = Step.objects.filter(task=self.task).first() or Step(
            task=self.task, branch=self.task.branch, number=1
        )
        while self.call is None:
            try:
                self.call = model_calls.intend_side(
                    self.task.pk,
                    self.fence,
                    self.step,
                    purpose=ModelCallPurpose.SUMMARY,
                    wish=wish,
                    request_hash="",
                    tokens=1000,
                )
            except NotAdmitted:
                if model_calls.wait_for_room(self.task.pk, self.fence, wish):
                    leases.release(self.task.pk, self.fence)
                    return False
        return True

    def answer(self, tokens_in: int, tokens_out: int) -> None:
        assert self.call is not None
        usage = TokenUsage(input_tokens=tokens_in, output_tokens=tokens_out)
        reply = ChatReply("", (), "stop", usage, "scripted")
        priced = price_book().priced(self.task.profile_version, "scripted", usage)
        model_calls.store_side_reply(self.task.pk, self.fence, self.step, self.call, reply, priced=priced)


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """All in threads of their own, which begin together."""
    together = threading.Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        together.wait(60)
        try:
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


@pytest.mark.parametrize(("tokens_in", "tokens_out"), [(700, 400), (1300, 1000)], ids=["below", "above"])
def test_first_calls_at_once_never_pass_the_limit_by_more_than_one_estimate_missed(
    version: ProfileVersion, tokens_in: int, tokens_out: int
) -> None:
    tasks = [new_task(version) for _ in range(AT_ONCE)]
    limit = budget(BudgetScope.USER, str(LIMIT), task=tasks[0], period=BudgetPeriod.MONTH)
    missed = max(Decimal(0), Decimal(tokens_in + tokens_out) * 25 / 1_000_000 - EXPECTED)
    let_in = 0
    while asking := [Asking(task) for task in Task.objects.filter(status="queued")]:
        ours = [each for each, admitted in zip(asking, at_once([each.ask for each in asking]), strict=True) if admitted]
        now = account(limit)
        assert now.spent_usd + EXPECTED * len(ours) <= LIMIT
        at_once([lambda each=each: each.answer(tokens_in, tokens_out) for each in ours])
        let_in += len(ours)
        wake_for_room()
    check_budgets()
    told = account(limit)
    assert told.reserved_usd == 0
    assert told.spent_usd == let_in * Decimal(tokens_in + tokens_out) * 25 / 1_000_000
    assert LIMIT - EXPECTED < told.spent_usd <= LIMIT + missed
    waiting = Task.objects.filter(status="waiting", waiting_for="budget")
    assert waiting.count() == AT_ONCE - let_in
    assert {task.waiting_until for task in waiting} == {told.ends_at}


def test_a_call_is_settled_in_the_period_in_which_it_was_let_in(version: ProfileVersion) -> None:
    """Midnight comes while it is under way: what is let in then counts in the next day."""
    limit = budget(BudgetScope.USER, str(LIMIT), task=new_task(version), period=BudgetPeriod.DAY)
    first, second = Asking(new_task(version)), Asking(new_task(version))
    first.ask()
    a_day_passes(limit)
    second.ask()
    assert first.call is not None
    first.call.refresh_from_db()
    first.answer(1000, 1000)
    old, new = BudgetAccount.objects.filter(budget=limit).order_by("starts_at")
    assert old.ends_at == new.starts_at
    assert (old.spent_usd, old.reserved_usd, new.spent_usd) == (EXPECTED, 0, 0)
    assert new.reserved_usd == (second.call and second.call.reserved_usd)


def a_day_passes(limit: Budget) -> None:
    day = timedelta(days=1)
    Budget.objects.filter(pk=limit.pk).update(created_at=limit.created_at - day)
    ModelCall.objects.update(started_at=F("started_at") - day)
    told = account(limit)
    assert told.ends_at is not None
    told.starts_at, told.ends_at = told.starts_at - day, told.ends_at - day
    told.period_key = f"{told.starts_at:%Y-%m-%d}"
    told.save()


def test_a_budget_that_is_set_while_a_call_is_under_way_counts_it_once(version: ProfileVersion) -> None:
    asking = Asking(new_task(version))
    asking.ask()
    before = budget(BudgetScope.TASK, "1", task=asking.task)
    asking.answer(1000, 500)
    after = budget(BudgetScope.USER, "1", task=asking.task, period=BudgetPeriod.DAY)
    assert account(before).spent_usd == account(after).spent_usd == Decimal("0.0375")
    check_budgets()


def test_a_budget_is_set_only_when_whoever_is_just_being_let_in_is_done(version: ProfileVersion) -> None:
    """Else a call could be settled that the new budget neither finds booked nor is charged with."""
    task = new_task(version)
    setting = threading.Thread(target=_set_site_budget, args=(task.created_by,))
    with repeating():
        for _ in range(12):  # as in a worker: prepared by now, and planned once for all
            query.bound(query.Spender.of(task), task.created_at)
    with transaction.atomic(), repeating():
        query.bound(query.Spender.of(task), task.created_at)
        setting.start()
        eventually(somebody_waits_for_a_lock, within_s=60)
        assert not Budget.objects.exists()
    setting.join(60)
    assert Budget.objects.count() == 1


def _set_site_budget(user: User) -> None:
    user.is_staff = True
    try:
        create_budget(scope=BudgetScope.SITE, period=BudgetPeriod.TOTAL, limit_usd=LIMIT, actor=user, reason="a test")
    finally:
        connection.close()
