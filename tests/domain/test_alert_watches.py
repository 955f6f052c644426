"""What is wrong now, at its edges; and what of it a rule sees, calls new, graver or over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workspaces.domain.alert_watches import Trouble, View, Whom, differences, duration
from workspaces.domain.alerts import AlertKind, Edge, Happening, RuleScope
from workspaces.domain.incidents import Severity
from workspaces.domain.states import ProcessRole, TaskStatus
from workspaces.domain.watch_quota import PoolDay, PressedPool, exhausted, predicted, rate_of
from workspaces.domain.watch_site import FailingNode, Process, Queue, clogged, failing, silent
from workspaces.domain.watch_work import QuietTask, Spending, Spent, overspending, spending_of, stuck, usual_of

NOW = 1_000_000_800.0
LONG_AGO = 0.0
MINE, OTHERS = Whom(1, 10, 100), Whom(2, 20, 200)


def subjects(troubles: list[Trouble]) -> list[str]:
    return [trouble.happening.subject for trouble in troubles]


# --- a task is stuck


def quiet(
    pk: int, seconds: float, status: TaskStatus = TaskStatus.RUNNING, waiting_for: str = "", over_s: float | None = None
) -> QuietTask:
    until = NOW - over_s if over_s is not None else None
    return QuietTask(pk, "Sum it", status, waiting_for, NOW - seconds, until, MINE)


def test_a_task_is_stuck_from_the_minute_on_that_the_rule_names() -> None:
    tasks = [quiet(1, 1800), quiet(2, 1799), quiet(3, 1800, TaskStatus.QUEUED), quiet(4, 1800, TaskStatus.PAUSING)]
    found = stuck(tasks, minutes=30, since_s=LONG_AGO, now_s=NOW)
    assert subjects(found) == ["task:1", "task:3", "task:4"]
    happening = found[0].happening
    assert (happening.task, happening.workspace, happening.user, happening.profile) == (1, 1, 10, 100)
    assert "is running and has had no event for 30 min" in happening.words


@pytest.mark.parametrize("waiting_for", ["quota", "timer", "child", "workspace", "budget"])
def test_a_wait_is_judged_by_its_end_alone(waiting_for: str) -> None:
    long = [quiet(over, 10**6, TaskStatus.WAITING, waiting_for, over) for over in (-600, 0, 1799, 1800)]
    assert subjects(stuck(long, minutes=30, since_s=LONG_AGO, now_s=NOW)) == ["task:1800"]


def test_who_waits_for_a_person_is_never_stuck() -> None:
    task = quiet(1, 10**6, TaskStatus.WAITING, "operator", 10**6)
    assert not stuck([task], minutes=1, since_s=LONG_AGO, now_s=NOW)


def test_what_nobody_watched_does_not_count_against_a_task() -> None:
    started = NOW - 1799
    assert not stuck([quiet(1, 10**6)], minutes=30, since_s=started, now_s=NOW)
    assert stuck([quiet(1, 10**6)], minutes=30, since_s=started - 1, now_s=NOW)


# --- quota


def pool(**changes: object) -> PressedPool:
    return replace(PressedPool(3, "the pool", 0, None, False, None, "", frozenset({MINE})), **changes)


def troubles_of(some: PressedPool, *, active: bool = False, since_s: float = LONG_AGO) -> list[Trouble]:
    return exhausted([some], seconds=60, since_s=since_s, active={"pool:3"} if active else set(), now_s=NOW)


def test_a_pool_is_exhausted_when_a_call_has_waited_long_enough_and_stays_so_until_half_of_that() -> None:
    waits = [pool(waiting=2, oldest_s=NOW - seconds) for seconds in (59, 60, 31, 29)]
    assert [bool(troubles_of(some)) for some in waits] == [False, True, False, False]
    assert [bool(troubles_of(some, active=True)) for some in waits] == [True, True, True, False]
    assert not troubles_of(waits[1], since_s=NOW - 59), "it was queued before anybody looked"
    words = troubles_of(waits[1])[0].happening.words
    assert words == "The quota pool the pool has no room: 2 calls wait, the first for 60 s."


def test_a_pool_that_holds_back_is_exhausted_when_it_does_so_for_long_and_until_it_sends_again() -> None:
    held = [pool(held_until_s=NOW + seconds, held_back="turned away") for seconds in (59, 60, 1, -1)]
    assert [bool(troubles_of(some)) for some in held] == [False, True, False, False]
    assert [bool(troubles_of(some, active=True)) for some in held] == [True, True, True, False]


def test_an_open_circuit_is_graver_and_needs_no_wait() -> None:
    (trouble,) = troubles_of(pool(circuit_open=True))
    assert trouble.happening.severity is Severity.ERROR
    (waits,) = troubles_of(pool(waiting=1, oldest_s=NOW - 60))
    assert waits.happening.severity is Severity.WARNING
    assert not troubles_of(pool())


def day(used: int, minutes: list[int], limit: int = 100_000) -> PoolDay:
    return PoolDay(3, "the pool", limit, used, minutes, frozenset({MINE}))


@pytest.mark.parametrize(
    ("some", "day_left_s", "active", "found"),
    [
        (day(40_000, [1_000] * 30), 86_000, False, True),  # 60 minutes are left
        (day(39_000, [1_000] * 30), 86_000, False, False),
        (day(39_000, [1_000] * 30), 86_000, True, True),  # the rate of a minute is not steady
        (day(24_000, [1_000] * 30), 86_000, True, False),
        (day(40_000, [1_000] * 30), 3_600, False, False),  # the day is over before
        (day(100_000, [1_000] * 30), 86_000, False, False),  # it is: the other condition's
        (day(90_000, [9_000, 9_000] + [0] * 28), 86_000, False, False),  # two minutes say nothing
        (day(90_000, [0] * 30), 86_000, False, False),
    ],
)
def test_a_day_is_predicted_by_the_present_rate(some: PoolDay, day_left_s: float, active: bool, found: bool) -> None:
    known = {"pool-day:3"} if active else set()
    assert bool(predicted([some], minutes=60, day_left_s=day_left_s, active=known, now_s=NOW)) is found


def test_a_rate_counts_from_the_first_minute_with_use() -> None:
    assert rate_of([300, 300, 0, 300, *([0] * 20)]) == 225
    assert rate_of([300, 300, *([0] * 20)]) == 0


# --- spending


def spending(hour: float, past: list[float]) -> Spending:
    return Spending(10, "ann", hour, past, frozenset({MINE}))


def overspends(some: Spending, *, factor: float = 3, least: float = 5, active: bool = False) -> list[Trouble]:
    known = {"spending:10"} if active else set()
    return overspending([some], factor=factor, least_usd=least, active=known, now_s=NOW)


def test_an_hour_is_unusual_above_the_factor_a_high_hour_and_the_least_amount() -> None:
    steady = [4.0] * 20
    assert not overspends(spending(12.0, steady))
    assert overspends(spending(12.01, steady))
    assert not overspends(spending(12.01, [*steady[:18], 30.0, 30.0])), "two hours of twenty were as dear"
    assert not overspends(spending(4.9, [0.01] * 20)), "small users do not alert"
    assert overspends(spending(5.1, [0.01] * 20))
    assert not overspends(spending(1_000, [4.0] * 4)), "four hours tell nothing of what is usual"


def test_a_single_wild_hour_does_not_move_what_is_usual() -> None:
    assert usual_of([1.0] * 20 + [500.0]) == (1.0, 1.0)
    assert usual_of([]) is None


def test_spending_goes_on_until_it_is_well_below_and_is_graver_at_twice() -> None:
    steady = [4.0] * 20
    assert overspends(spending(9.7, steady), active=True)
    assert not overspends(spending(9.6, steady), active=True)
    assert overspends(spending(24.0, steady))[0].happening.severity is Severity.WARNING
    assert overspends(spending(24.1, steady))[0].happening.severity is Severity.ERROR


def test_the_last_sixty_minutes_are_this_hour_and_a_part_of_the_one_before() -> None:
    hour = 1_000_800  # begins a whole hour
    assert hour % 3_600 == 0
    spent = [Spent(hour, 3.0, MINE), Spent(hour - 3_600, 8.0, MINE), Spent(hour - 7_200, 2.0, OTHERS)]
    found = spending_of(10, "ann", spent, now_s=hour + 900)
    assert found.hour == pytest.approx(3.0 + 0.75 * 8.0)
    assert found.past == [2.0]
    assert found.whom == {MINE, OTHERS}


# --- workers and the scheduler


def process(
    seen_ago: float, *, lived: float = 10_000, role: ProcessRole = ProcessRole.WORKER, host: str = "a", **more: bool
) -> Process:
    return Process(role, host, f"{host}:{seen_ago:.0f}", NOW - seen_ago - lived, NOW - seen_ago, **more)


def misses(*some: Process, since_s: float = LONG_AGO, scheduler: bool = True) -> list[str]:
    seen = [*some, *([process(1, role=ProcessRole.SCHEDULER)] if scheduler else [])]
    return subjects(silent(seen, seconds=30, since_s=since_s, now_s=NOW))


def test_workers_are_missed_when_none_lives() -> None:
    assert misses(process(30)) == []
    assert misses(process(31)) == ["workers", "worker:a"]
    assert misses(process(30, ending=True)) == [], "what takes its place may take a while"
    assert misses(process(31, ending=True)) == ["workers"], "told to end: in order, but nobody works"
    assert misses() == ["workers"]
    assert misses(process(5)) == []


def test_nobody_is_missed_before_somebody_has_looked_for_as_long() -> None:
    assert misses(scheduler=False, since_s=NOW - 29) == []
    assert misses(scheduler=False, since_s=NOW - 30) == ["workers", "scheduler"]


def test_a_worker_that_stopped_in_the_midst_is_missed_until_another_takes_its_place() -> None:
    lives = process(2)
    assert misses(lives, process(31)) == ["worker:a"]
    assert misses(lives, process(31, ending=True)) == []
    assert misses(lives, process(2, lived=10), process(31)) == [], "it started after the other was last seen"
    assert misses(lives, process(2, lived=10), process(31), process(40)) == ["worker:a"], "one for two"
    assert misses(lives, process(31, host="b")) == ["worker:b"]
    assert misses(lives, process(2, lived=10), process(31, host="b")) == ["worker:b"], "of another host"


def test_a_host_on_which_workers_keep_stopping_is_told_although_one_lives() -> None:
    gone = [process(ago, lived=50) for ago in (100, 200, 300)]
    assert misses(process(1, lived=98), *gone) == ["worker:a"]
    assert misses(process(1, lived=198), *gone[1:]) == []


def test_a_scheduler_is_missed_when_none_lives() -> None:
    assert misses(process(1), scheduler=False) == ["scheduler"]
    assert misses(process(1), process(31, role=ProcessRole.SCHEDULER), scheduler=False) == ["scheduler"]
    assert misses(process(1), process(30, role=ProcessRole.SCHEDULER), scheduler=False) == []


# --- the queue and the nodes


def test_the_queue_is_clogged_by_a_task_or_a_signal_that_nobody_takes_up() -> None:
    def found(queue: Queue, since_s: float = LONG_AGO) -> list[str]:
        return subjects(clogged(queue, seconds=120, since_s=since_s, now_s=NOW))

    assert found(Queue(0, None, 0, None, True)) == []
    assert found(Queue(3, NOW - 119, 9, NOW - 119, True)) == []
    assert found(Queue(3, NOW - 120, 9, NOW - 120, True)) == ["queue:due", "queue:signals"]
    assert found(Queue(3, NOW - 10**6, 9, NOW - 10**6, True), since_s=NOW - 119) == []
    assert found(Queue(0, None, 0, None, False)) == ["queue:broker"]
    unread = Queue(0, None, 0, None, True, [("task_stuck", NOW - 120), ("spend_rate", NOW - 119)])
    assert found(unread) == ["queue:watch-task_stuck"]


def test_a_node_fails_once_it_was_asked_lately_and_for_long_enough() -> None:
    def found(node: FailingNode, *, active: bool = False, since_s: float = LONG_AGO) -> list[str]:
        known = {"node:n1"} if active else set()
        return subjects(failing([node], seconds=30, since_s=since_s, active=known, now_s=NOW))

    assert found(FailingNode("n1", NOW - 29, NOW, "no route")) == []
    assert found(FailingNode("n1", NOW - 30, NOW, "no route")) == ["node:n1"]
    stale = FailingNode("n1", NOW - 10**6, NOW - 10**5, "no route")
    assert found(stale, since_s=NOW - 10) == [], "seen before there was a gap"
    assert found(stale, since_s=NOW - 10, active=True) == ["node:n1"], "nor is it known to be over"


# --- what a rule sees, and what changed


def trouble(kind: AlertKind = AlertKind.QUOTA_EXHAUSTED, *whom: Whom, user: int | None = None) -> Trouble:
    return Trouble(Happening(kind, Edge.BEGAN, "pool:3", NOW, pool=3, user=user), frozenset(whom))


SITE = Trouble(Happening(AlertKind.WORKER_UNHEALTHY, Edge.BEGAN, "workers", NOW))
OWN = frozenset({1})


@pytest.mark.parametrize(
    ("view", "some", "seen"),
    [
        (View(), SITE, {}),
        (View(workspaces=OWN, owner=10), SITE, None),
        (View(RuleScope.WORKSPACE, 1), SITE, None),
        (View(), trouble(), {}),
        (View(workspaces=OWN, owner=10), trouble(), None),
        (View(workspaces=OWN, owner=10), trouble(AlertKind.QUOTA_EXHAUSTED, MINE, OTHERS), {}),
        (View(workspaces=OWN, owner=10), trouble(AlertKind.QUOTA_EXHAUSTED, OTHERS), None),
        (View(RuleScope.WORKSPACE, 1), trouble(AlertKind.QUOTA_EXHAUSTED, MINE), {"workspace": 1}),
        (View(RuleScope.WORKSPACE, 2), trouble(AlertKind.QUOTA_EXHAUSTED, MINE), None),
        (View(RuleScope.WORKSPACE, 2, OWN, 10), trouble(AlertKind.QUOTA_EXHAUSTED, MINE, OTHERS), None),
        (View(RuleScope.USER, 20), trouble(AlertKind.QUOTA_EXHAUSTED, MINE, OTHERS), {"user": 20}),
        (View(RuleScope.PROFILE, 100), trouble(AlertKind.QUOTA_EXHAUSTED, MINE), {"profile": 100}),
        (
            View(RuleScope.PROFILE, 100, OWN, 10),
            trouble(AlertKind.QUOTA_EXHAUSTED, MINE),
            {"profile": 100, "workspace": 1},
        ),
        (View(workspaces=OWN, owner=10), trouble(AlertKind.SPEND_RATE, MINE, user=10), {}),
        (View(workspaces=OWN, owner=30), trouble(AlertKind.SPEND_RATE, MINE, user=10), None),
        (View(RuleScope.WORKSPACE, 1, OWN, 30), trouble(AlertKind.SPEND_RATE, MINE, user=10), None),
        (View(), trouble(AlertKind.SPEND_RATE, MINE, user=10), {}),
    ],
)
def test_a_rule_sees_what_is_in_its_scope_and_its_owners_sight(
    view: View, some: Trouble, seen: dict[str, int] | None
) -> None:
    assert view.of(some) == (None if seen is None else replace(some.happening, **seen))


def test_differences_say_what_began_got_graver_and_ended() -> None:
    def named(subject: str, severity: Severity = Severity.WARNING) -> Happening:
        return Happening(AlertKind.TASK_STUCK, Edge.BEGAN, subject, NOW, severity)

    def changed(active: dict[str, Severity], *now: Happening) -> list[tuple[str, str]]:
        found = differences(
            now, active, kind=AlertKind.TASK_STUCK, at_s=NOW, over="over", severity_of=lambda each: each.severity
        )
        return [(each.edge.value, each.subject) for each in found]

    warning, error = Severity.WARNING, Severity.ERROR
    assert changed({}) == []
    assert changed({}, named("a")) == [("began", "a")]
    assert changed({"a": warning}, named("a")) == []
    assert changed({"a": warning}, named("a", error)) == [("worse", "a")]
    assert changed({"a": error}, named("a")) == [], "milder is not told"
    assert changed({"a": warning}) == [("ended", "a")]
    assert changed({"a": warning, "b": warning}, named("b", error), named("c")) == [
        ("began", "c"),
        ("worse", "b"),
        ("ended", "a"),
    ]
    assert len(changed({}, *(named(str(number)) for number in range(5_001)))) == 5_000, "the next look takes the rest"


def test_a_duration_is_said_in_whole_units() -> None:
    assert [duration(seconds) for seconds in (-1, 0.4, 119, 120, 7_199, 7_200, 172_800)] == [
        *("0 s", "0 s", "119 s", "2 min", "119 min", "2 h", "2 d"),
    ]
