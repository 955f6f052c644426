"""An alert's life against its promises, for whatever comes: see the head of domain/alerting.py."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workspaces.domain.alerting import (
    LIVE,
    Change,
    Known,
    Message,
    Move,
    Pace,
    Standing,
    acknowledge,
    due,
    fresh,
    goes_back,
    happen,
    join,
    leave,
    resolve,
    stored,
    tick,
)
from workspaces.domain.alerts import AlertState, ChangeKind
from workspaces.domain.incidents import Severity

START = datetime(2026, 1, 1, tzinfo=UTC)
COOLDOWN_S = 600
S, W, E, C = AlertState, Severity.WARNING, Severity.ERROR, Severity.CRITICAL
PACE = Pace(cooldown_s=COOLDOWN_S)
bounded = settings(
    max_examples=300, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclass
class Group:
    """One rule's group over time, as actions/alerts.py keeps it: alerts one after another, and what was told."""

    pace: Pace = PACE
    now: datetime = START
    alert: Standing | None = None
    told: list[tuple[datetime, Change, Standing]] = field(default_factory=list)
    alerts: int = 0

    def take(self, move: Move) -> None:
        before = self.alert
        assert before is not None
        for change in move.changes:
            assert change.number == before.last_change + 1, "a gap in the numbers"
            before = replace(before, last_change=change.number)
            if change.message is not None:
                self.told.append((self.now, change, move.standing))
        assert move.standing.last_change == before.last_change
        assert move.standing.tell_at == due(move.standing, self.pace, self.now)
        assert (move.standing.resolved_at is None) == (move.standing.state is not S.RESOLVED)
        columns = {
            name: getattr(move.standing, name)
            for name in ("state", "severity", "began_at", "active", "opens_at", "resolved_at", "reopened")
        }
        columns |= {"last_change": move.standing.last_change, "tell_at": move.standing.tell_at}
        assert stored(move.standing.told_json(), **columns) == move.standing, "it is not stored as it is"
        self.alert = None if move.standing.never_opened else move.standing

    def current(self, severity: Severity) -> Standing:
        if self.alert is None or not goes_back(self.alert, self.pace, self.now):
            self.alert = fresh(severity, self.now, self.pace)
            self.alerts += 1
        return self.alert

    def begins(self, severity: Severity = W, *, added: int = 1) -> None:
        alert = self.current(severity)
        self.take(join(alert, self.pace, self.now, added=added, severity=severity, began_at=self.now))

    def worse(self, severity: Severity) -> None:
        if self.alert is not None and self.alert.active:
            alert = self.alert
            self.take(join(alert, self.pace, self.now, added=0, severity=severity, began_at=self.now))

    def ends(self, count: int = 1) -> None:
        if self.alert is not None and self.alert.active:
            self.take(leave(self.alert, self.pace, self.now, left=min(count, self.alert.active)))

    def happens(self, severity: Severity = W, *, count: int = 1) -> None:
        alert = self.current(severity)
        self.take(happen(alert, self.pace, self.now, count=count, severity=severity))

    def acknowledged(self) -> None:
        if self.alert is not None and self.alert.state is S.OPEN:
            self.take(acknowledge(self.alert, self.pace, self.now))

    def resolved(self) -> None:
        if self.alert is not None and self.alert.state in LIVE:
            self.take(resolve(self.alert, self.pace, self.now))

    def passes(self, seconds: float, *, look_s: float = 0) -> None:
        """Looked at every `look_s`, and at the end."""
        end = self.now + timedelta(seconds=seconds)
        while look_s and self.now + timedelta(seconds=look_s) < end:
            self.now += timedelta(seconds=look_s)
            self.look()
        self.now = end
        self.look()

    def look(self) -> None:
        if self.alert is not None:
            self.take(tick(self.alert, self.pace, self.now))

    def mute(self, until: datetime | None) -> None:
        self.pace = replace(self.pace, muted_until=until)
        self.look()

    @property
    def messages(self) -> list[tuple[float, Message]]:
        return [((when - START).total_seconds(), change.message) for when, change, _ in self.told if change.message]


SEVERITIES = st.sampled_from(list(Severity))
DOINGS = st.one_of(
    st.tuples(st.just("begins"), SEVERITIES),
    st.tuples(st.just("begins"), SEVERITIES),
    st.tuples(st.just("worse"), SEVERITIES),
    st.tuples(st.just("ends"), st.integers(1, 3)),
    st.tuples(st.just("ends"), st.integers(1, 3)),
    st.tuples(st.just("happens"), SEVERITIES),
    st.tuples(st.just("acknowledged"), st.none()),
    st.tuples(st.just("resolved"), st.none()),
    st.tuples(st.just("passes"), st.sampled_from([1, 20, 61, 299, 600, 601, 2000])),
    st.tuples(st.just("passes"), st.sampled_from([1, 20, 61, 299, 600, 601, 2000])),
    st.tuples(st.just("mute"), st.sampled_from([None, 100, 700, 5000])),
)
PACES = st.builds(
    Pace,
    hold_s=st.sampled_from([0, 0, 30, 120]),
    cooldown_s=st.just(COOLDOWN_S),
    remind_s=st.sampled_from([0, 60, 900]),
    tell_resolved=st.booleans(),
)


def played(doings: list[tuple[str, Any]], pace: Pace) -> Group:
    group = Group(pace)
    for what, much in doings:
        if what == "mute":
            group.mute(None if much is None else group.now + timedelta(seconds=much))
        elif much is None:
            getattr(group, what)()
        else:
            getattr(group, what)(much)
    return group


@bounded
@given(st.lists(DOINGS, max_size=60), PACES)
def test_never_more_messages_than_promised(doings: list[tuple[str, Any]], pace: Pace) -> None:
    group = played(doings, pace)
    openings = [when for when, message in group.messages if message in (Message.OPENED, Message.UPDATED)]
    ends = [when for when, message in group.messages if message is Message.RESOLVED]
    if not group.messages:
        return
    cooldowns = int((group.now - START).total_seconds() - group.messages[0][0]) // COOLDOWN_S + 1
    rises = 3 * group.alerts
    assert len(openings) <= cooldowns + rises
    assert len(ends) <= len(openings)
    hurried = sum(later - earlier < COOLDOWN_S for earlier, later in itertools.pairwise(openings))
    assert hurried <= rises, "something other than a rise of severity did not wait"


@bounded
@given(st.lists(DOINGS, max_size=60), PACES)
def test_without_rises_openings_lie_a_cooldown_apart(doings: list[tuple[str, Any]], pace: Pace) -> None:
    level = [(what, W if isinstance(much, Severity) else much) for what, much in doings]
    group = played(level, pace)
    openings = [when for when, message in group.messages if message in (Message.OPENED, Message.UPDATED)]
    assert all(later - earlier >= COOLDOWN_S for earlier, later in itertools.pairwise(openings))


@bounded
@given(st.lists(DOINGS, max_size=60), PACES)
def test_what_receivers_believe_is_true_in_the_end(doings: list[tuple[str, Any]], pace: Pace) -> None:
    group = played(doings, pace)
    group.passes(max(COOLDOWN_S, pace.hold_s, 5000) + 1)
    alert = group.alert
    if alert is None:
        return
    if alert.state is S.OPEN:
        assert alert.known is Known.OPEN
        assert alert.told_severity is not None
        assert alert.told_severity.rank >= alert.severity.rank
        assert not alert.unsaid
    elif alert.state is S.RESOLVED:
        assert alert.known is not Known.OPEN
    assert alert.state is S.ACKNOWLEDGED or not alert.gathered, "something that happened was told to nobody"


@bounded
@given(st.lists(DOINGS, max_size=60), PACES)
def test_an_end_is_told_exactly_to_who_was_told_the_opening(doings: list[tuple[str, Any]], pace: Pace) -> None:
    group = Group(pace)
    believed: dict[int, bool] = {}
    for doing in doings:
        before = len(group.told)
        state = group.alert.state if group.alert else None
        played_on(group, doing)
        for _, change, standing in group.told[before:]:
            believes = believed.get(group.alerts, False)
            assert believes == (change.message is not Message.OPENED)
            believed[group.alerts] = change.message is not Message.RESOLVED and (
                standing.state in LIVE or standing.known is Known.OPEN
            )
        ended = group.alert is not None and group.alert.state is S.RESOLVED and state in LIVE
        muted = group.pace.muted_until is not None and group.now < group.pace.muted_until
        if ended and not muted and pace.tell_resolved:
            assert not believed.get(group.alerts, False), "receivers still take it for open"
        if not pace.tell_resolved:
            believed[group.alerts] = group.alert is not None and group.alert.known is Known.OPEN
            assert Message.RESOLVED not in [message for _, message in group.messages]


def played_on(group: Group, doing: tuple[str, Any]) -> None:
    what, much = doing
    if what == "mute":
        group.mute(None if much is None else group.now + timedelta(seconds=much))
    else:
        getattr(group, what)(*([] if much is None else [much]))


@bounded
@given(st.lists(DOINGS, max_size=40), PACES)
def test_nothing_is_told_while_it_is_muted(doings: list[tuple[str, Any]], pace: Pace) -> None:
    group = Group(pace)
    group.mute(START + timedelta(days=30))
    for doing in doings:
        if doing[0] != "mute":
            played_on(group, doing)
    assert group.messages == []


def test_an_alert_that_flaps_two_hundred_times_in_three_hours_is_told_twice_a_cooldown() -> None:
    group = Group()
    for _ in range(200):
        group.begins()
        group.passes(27, look_s=5)
        group.ends()
        group.passes(27, look_s=5)
    assert group.alerts == 1
    assert 2 <= len(group.messages) <= 2 * (200 * 54 // COOLDOWN_S + 1)
    assert [message for _, message in group.messages[:4]] == [
        *(Message.OPENED, Message.RESOLVED, Message.OPENED, Message.RESOLVED)
    ]


def test_what_ends_before_it_has_held_is_told_to_nobody_and_leaves_nothing() -> None:
    group = Group(replace(PACE, hold_s=60))
    for _ in range(20):
        group.begins()
        group.passes(30)
        assert group.alert is not None
        assert group.alert.state is S.PENDING
        group.ends()
        assert group.alert is None
        group.passes(30)
    assert group.messages == []
    group.begins()
    group.passes(60)
    assert [message for _, message in group.messages] == [Message.OPENED]


def test_a_group_goes_back_into_its_alert_within_the_cooldown_and_holds_again_first() -> None:
    group = Group(replace(PACE, hold_s=60))
    group.begins()
    group.passes(60)
    group.ends()
    group.passes(10)
    group.begins()
    assert group.alert is not None
    assert (group.alert.state, group.alert.resolved_before) == (S.PENDING, at(60))
    group.passes(30)
    group.ends()
    assert (group.alert.state, group.alert.resolved_at, group.alert.last_change) == (S.RESOLVED, at(60), 2)
    group.passes(570)
    group.begins()
    assert group.alerts == 2, "the cooldown was over: another alert"


def test_growth_waits_for_the_cooldown_and_a_rise_of_severity_does_not() -> None:
    group = Group()
    group.begins(W)
    group.passes(10)
    group.begins(W, added=40)
    group.passes(10)
    group.worse(E)
    group.worse(E)
    assert group.messages == [(0, Message.OPENED), (20, Message.UPDATED)]
    group.passes(10)
    group.begins(W)
    group.passes(700, look_s=1)
    assert group.messages[2:] == [(620, Message.UPDATED)]


def test_who_acknowledged_is_told_of_a_rise_and_of_the_end_and_not_reminded() -> None:
    group = Group(replace(PACE, remind_s=900))
    group.begins(W)
    group.passes(900, look_s=10)
    assert group.messages == [(0, Message.OPENED), (900, Message.UPDATED)]
    group.acknowledged()
    group.begins(W)
    group.passes(5000, look_s=10)
    group.worse(C)
    group.ends(2)
    assert [message for _, message in group.messages[2:]] == [
        *(Message.ACKNOWLEDGED, Message.UPDATED, Message.RESOLVED)
    ]


def test_a_mute_holds_back_and_what_is_open_then_is_told_and_what_ended_too() -> None:
    group = Group()
    group.begins()
    group.mute(at(1000))
    group.passes(100)
    group.ends()
    group.passes(800)
    assert group.messages == [(0, Message.OPENED)]
    group.passes(200, look_s=1)
    assert group.messages[1:] == [(1000, Message.RESOLVED)]
    group.mute(at(5000))
    group.passes(1000)
    group.begins()
    group.passes(500)
    group.mute(None)
    assert group.messages[2:] == [(2600, Message.OPENED)]


def test_a_person_resolves_what_goes_on_and_it_comes_back_only_when_something_new_begins_or_it_gets_worse() -> None:
    group = Group()
    group.begins(W, added=3)
    group.resolved()
    assert group.messages == [(0, Message.OPENED), (0, Message.RESOLVED)]
    group.worse(W)
    group.passes(1)
    group.ends()
    assert group.alert is not None
    assert (group.alert.state, group.alert.active) == (S.RESOLVED, 2)
    group.worse(E)
    assert (group.alert.state, group.alert.active, group.alert.reopened) == (S.OPEN, 2, 1)
    assert group.messages[2:] == [(1, Message.OPENED)]


def test_what_only_happens_is_one_message_and_gathered_within_the_cooldown() -> None:
    group = Group()
    group.happens()
    assert group.alert is not None
    assert (group.alert.state, group.messages) == (S.RESOLVED, [(0, Message.OPENED)])
    for _ in range(7):
        group.passes(20)
        group.happens()
    group.passes(1000, look_s=1)
    assert group.messages[1:] == [(600, Message.OPENED)]
    assert [change.kind for _, change, _ in group.told] == [ChangeKind.OPENED, ChangeKind.REMINDED]


def test_a_longer_cooldown_or_a_mute_set_later_counts_from_what_is_stored() -> None:
    group = Group()
    group.begins()
    group.ends()
    group.begins()
    assert group.alert is not None
    assert group.alert.tell_at == at(600)
    group.pace = replace(PACE, cooldown_s=1200)
    group.look()
    assert group.alert.tell_at == at(1200)


def test_a_severity_that_was_told_before_is_no_rise_however_often_it_comes_back() -> None:
    group = Group()
    group.begins(C)
    group.ends()
    group.passes(599)
    group.begins(W)
    group.passes(10)
    assert [message for _, message in group.messages] == [Message.OPENED, Message.RESOLVED, Message.OPENED]
    group.worse(C)
    assert len(group.messages) == 3, "it was told as critical before: it waits for the cooldown"
    assert group.alert is not None
    assert (group.alert.severity, group.alert.told_severity) == (C, C)


def test_a_rule_that_tells_ends_no_more_tells_none_that_a_mute_held_back() -> None:
    group = Group()
    group.begins()
    group.mute(at(1000))
    group.ends()
    group.pace = replace(group.pace, tell_resolved=False)
    group.passes(2000)
    assert group.messages == [(0, Message.OPENED)]
