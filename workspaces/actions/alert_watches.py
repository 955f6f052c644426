"""Looks at what is watched for alerts and hands what changed to the rules' alerts. See domain/watched.py for what.

`look` may be called by any process, as often as it likes: one at a time looks, each condition at its own pace, and
not at all without a rule. A condition that cannot be read does not stop the others; it says so on its row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from django.db import connection
from django.db.models import F
from django.db.models.functions import Coalesce

from workspaces.domain import watch_quota, watch_site, watch_work
from workspaces.domain.alert_rules import Matcher
from workspaces.domain.alert_watches import Trouble, View, differences
from workspaces.domain.alerts import AlertKind, Happening
from workspaces.domain.incidents import Severity
from workspaces.domain.quotas import DAY_S
from workspaces.domain.text import clip
from workspaces.domain.watched import (
    DUE_S,
    EXHAUSTED_S,
    NODE_S,
    PACE_S,
    PREDICTED_MINUTES,
    SILENT_S,
    SPEND_FACTOR,
    SPEND_LEAST_USD,
    STUCK_MINUTES,
    WATCHED_SUBJECTS,
    Threshold,
)
from workspaces.models import AlertRule, AlertWatch
from workspaces.queries import alert_watches as read
from workspaces.queries.alert_matching import matchers_of
from workspaces.queries.database import is_away

from .alerts import take

logger = logging.getLogger(__name__)

_LOOKING = 7_411_906  # the advisory lock of the one process that looks
GAP_S = 15  # between two looks: what happened in a longer one, nobody has seen
OVER = "It is over."
NOT_WATCHED = "The rule does not watch this any more."

K = AlertKind


@dataclass(frozen=True, slots=True)
class Watching:
    """A rule, how it looks at troubles, and which of its members go on, as grave as it called them."""

    rule: AlertRule
    matcher: Matcher
    view: View
    active: Mapping[str, Severity]

    def number(self, threshold: Threshold) -> float:
        return threshold.of(self.rule.params)

    def own(self, troubles: Iterable[Trouble]) -> list[Happening]:
        """Those that the rule matches. What goes on does so also where it is less grave than the rule begins at."""
        found = []
        for trouble in troubles:
            happening = self.view.of(trouble)
            if happening is None:
                continue
            goes_on = happening.subject in self.active
            if self.matcher.matches(replace(happening, severity=Severity.CRITICAL) if goes_on else happening):
                found.append(happening)
        return found


@dataclass(frozen=True, slots=True)
class Moment:
    """`since_s`: from when on somebody has looked without a gap."""

    now: datetime
    since_s: float
    broker_answers: Callable[[], bool]

    @property
    def now_s(self) -> float:
        return self.now.timestamp()


def look(*, broker_answers: Callable[[], bool]) -> int:
    """Every condition whose time has come; how many happenings were handed on. 0 also while another process looks.

    Raises DatabaseError when the database is away.
    """
    handed = 0
    with _alone() as mine:
        if not mine:
            return 0
        moment = _go_on(broker_answers)
        due = _due(moment)
        rules = read.watching_rules(due)
        for kind in due:
            wrong = ""
            try:
                handed += _look_at(kind, rules.get(kind, []), moment)
            except Exception as error:
                if is_away(error):
                    raise
                logger.exception("what is watched for alerts of %s could not be told", kind.value)
                wrong = f"{type(error).__name__}: {error}"
            _looked_at(kind, moment, wrong)
    return handed


def _look_at(kind: AlertKind, rules: Sequence[AlertRule], moment: Moment) -> int:
    """The members first, then the condition: what begins in between is not taken for over."""
    known = {
        rule: {subject: severity for subject, severity in members.items() if subject.startswith(WATCHED_SUBJECTS[kind])}
        for rule, members in read.active_members(kind).items()
    }
    matchers = matchers_of(rules)
    watching = [
        Watching(rule, matcher, _view(matcher), known.get(rule.pk, {}))
        for rule in rules
        if isinstance(matcher := matchers[rule.pk], Matcher)
    ]
    handed = 0
    for each, troubles in _READ[kind](watching, moment) if watching else ():
        own = each.own(troubles)
        handed += _hand(each.rule, _changed(kind, own, each.active, moment, OVER, each.matcher.severity_of))
    watched = {rule.pk for rule in rules}
    idle = {pk: members for pk, members in known.items() if members and pk not in watched}
    in_force = AlertRule.objects.filter(pk__in=list(idle), enabled=True, retired_at=None)
    for rule in in_force if idle else ():
        handed += _hand(rule, _changed(kind, [], idle[rule.pk], moment, NOT_WATCHED, attrgetter("severity")))
    return handed


def _view(matcher: Matcher) -> View:
    sight = matcher.sight
    return View(matcher.scope, matcher.scope_id, sight.workspaces if sight else None, sight.user if sight else None)


def _changed(
    kind: AlertKind,
    now: Iterable[Happening],
    active: Mapping[str, Severity],
    moment: Moment,
    over: str,
    severity_of: Callable[[Happening], Severity],
) -> list[Happening]:
    return differences(now, active, kind=kind, at_s=moment.now_s, over=over, severity_of=severity_of)


def _hand(rule: AlertRule, happenings: Sequence[Happening]) -> int:
    if happenings:
        take(rule, happenings)
    return len(happenings)


# --- whose turn, and when


@contextmanager
def _alone() -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOOKING])
        mine = bool(cursor.fetchone()[0])
    try:
        yield mine
    finally:
        if mine:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOOKING])


_GO_ON = """
INSERT INTO workspaces_alertwatch AS known (kind, looked_at, since, error)
VALUES ('', statement_timestamp(), statement_timestamp(), '')
ON CONFLICT (kind) DO UPDATE
   SET looked_at = EXCLUDED.looked_at,
       since = CASE WHEN known.looked_at < EXCLUDED.looked_at - make_interval(secs => %s::int)
                    THEN EXCLUDED.looked_at ELSE known.since END
RETURNING looked_at, extract(epoch FROM since)::float
"""


def _go_on(broker_answers: Callable[[], bool]) -> Moment:
    with connection.cursor() as cursor:
        cursor.execute(_GO_ON, [GAP_S])
        now, since_s = cursor.fetchone()
    return Moment(now, since_s, broker_answers)


def _due(moment: Moment) -> list[AlertKind]:
    looked = dict(AlertWatch.objects.values_list("kind", "looked_at"))
    long_ago = moment.now - timedelta(days=1)
    return [
        kind
        for kind, pace_s in PACE_S.items()
        if moment.now - looked.get(kind.value, long_ago) >= timedelta(seconds=pace_s)
    ]


def _looked_at(kind: AlertKind, moment: Moment, wrong: str) -> None:
    known = AlertWatch.objects.filter(kind=kind.value)
    failing = Coalesce(F("failing_since"), moment.now) if wrong else None
    values = {"looked_at": moment.now, "error": clip(wrong, 500), "failing_since": failing}
    if not known.update(**values):
        AlertWatch.objects.create(
            kind=kind.value,
            since=moment.now,
            **values | {"failing_since": moment.now if wrong else None},
        )


# --- what is wrong now, as each rule's thresholds say

Readings = Iterable[tuple[Watching, Sequence[Trouble]]]


def _stuck(watching: Sequence[Watching], moment: Moment) -> Readings:
    least = min(each.number(STUCK_MINUTES) for each in watching)
    tasks = read.quiet_tasks(moment.now - timedelta(minutes=least))
    for each in watching:
        minutes = each.number(STUCK_MINUTES)
        yield each, watch_work.stuck(tasks, minutes=minutes, since_s=moment.since_s, now_s=moment.now_s)


def _exhausted(watching: Sequence[Watching], moment: Moment) -> Readings:
    pools = read.pressed_pools(name_whom=any(not each.view.whole for each in watching))
    for each in watching:
        seconds = each.number(EXHAUSTED_S)
        yield (
            each,
            watch_quota.exhausted(
                pools, seconds=seconds, since_s=moment.since_s, active=each.active, now_s=moment.now_s
            ),
        )


def _predicted(watching: Sequence[Watching], moment: Moment) -> Readings:
    pools = read.pool_days(moment.now, name_whom=any(not each.view.whole for each in watching))
    left_s = DAY_S - moment.now_s % DAY_S
    for each in watching:
        minutes = each.number(PREDICTED_MINUTES)
        yield (
            each,
            watch_quota.predicted(pools, minutes=minutes, day_left_s=left_s, active=each.active, now_s=moment.now_s),
        )


def _overspending(watching: Sequence[Watching], moment: Moment) -> Readings:
    least = min(each.number(SPEND_LEAST_USD) for each in watching) * watch_work.CALMS_AT
    users = read.spenders(least, moment.now)
    spent = read.hours_of(users, moment.now)
    names = read.names_of(users)
    for each in watching:
        theirs = [
            watch_work.spending_of(
                user, names[user], [one for one in spent.get(user, ()) if each.view.sees(one.whom)], now_s=moment.now_s
            )
            for user in sorted(users & names.keys())
        ]
        yield (
            each,
            watch_work.overspending(
                theirs,
                factor=each.number(SPEND_FACTOR),
                least_usd=each.number(SPEND_LEAST_USD),
                active=each.active,
                now_s=moment.now_s,
            ),
        )


def _silent(watching: Sequence[Watching], moment: Moment) -> Readings:
    processes = read.processes()
    for each in watching:
        seconds = each.number(SILENT_S)
        yield each, watch_site.silent(processes, seconds=seconds, since_s=moment.since_s, now_s=moment.now_s)


def _clogged(watching: Sequence[Watching], moment: Moment) -> Readings:
    queue = read.queue(broker_answers=moment.broker_answers())
    for each in watching:
        seconds = each.number(DUE_S)
        yield each, watch_site.clogged(queue, seconds=seconds, since_s=moment.since_s, now_s=moment.now_s)


def _failing(watching: Sequence[Watching], moment: Moment) -> Readings:
    nodes = read.failing_nodes()
    for each in watching:
        yield (
            each,
            watch_site.failing(
                nodes,
                seconds=each.number(NODE_S),
                since_s=moment.since_s,
                active=each.active,
                now_s=moment.now_s,
            ),
        )


_READ: dict[AlertKind, Callable[[Sequence[Watching], Moment], Readings]] = {
    K.TASK_STUCK: _stuck,
    K.QUOTA_EXHAUSTED: _exhausted,
    K.QUOTA_PREDICTED: _predicted,
    K.SPEND_RATE: _overspending,
    K.WORKER_UNHEALTHY: _silent,
    K.QUEUE_UNHEALTHY: _clogged,
    K.SANDBOX_UNHEALTHY: _failing,
}
