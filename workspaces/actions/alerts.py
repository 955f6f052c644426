"""Alerts: what was signalled becomes alerts, what has held opens, what waited is told, and people answer.

One digester at a time moves alerts in bulk; each batch is one transaction, so a process that dies leaves the signals as
they were, and the next one takes them. Signals are told from those taken by their own mark, not by a place in the order
of ids: one that was committed late is not passed over. Looks at no task, account or pool under a lock.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from workspaces.domain import alerting
from workspaces.domain.alert_rules import Matcher
from workspaces.domain.alerts import AlertKind, AlertState, Edge, Happening
from workspaces.domain.incidents import IncidentState
from workspaces.domain.text import clip
from workspaces.models import Alert, AlertMember, AlertRule, AlertSignal, Incident
from workspaces.queries.alert_matching import enabled_rules, happening_of, matchers_of
from workspaces.queries.database import is_away

from .alert_answers import acknowledge_alert as acknowledge_alert
from .alert_answers import resolve_alert as resolve_alert
from .alert_book import NOTHING, alert_lock, take_up
from .alert_log import Entry, pace_of, record, standing_of, store, write_history
from .clock import database_now

logger = logging.getLogger(__name__)

BATCH = 500
ERROR_CHARS = 500


def digest(*, most: int = 20) -> int:
    """Take the signals that nobody has taken yet, at most so many batches; returns how many there were.

    A signal that cannot be taken is set aside with its error, and does not hold up the others.
    """
    taken = 0
    for _ in range(most):
        if not AlertSignal.objects.filter(digested_at=None).exists():
            break
        count = _digest_batch()
        taken += count
        if count < BATCH:
            break
    return taken


def _digest_batch() -> int:
    with transaction.atomic():
        alert_lock()
        signals = _next_signals()
        if not signals:
            return 0
        now = database_now()
        errors: dict[int, str] = {}
        happenings = _read(signals, errors)
        if happenings:
            _take_all(happenings, now, errors)
        fine = [signal.pk for signal in signals if signal.pk not in errors]
        AlertSignal.objects.filter(pk__in=fine).update(digested_at=now)
        for pk, error in errors.items():
            AlertSignal.objects.filter(pk=pk).update(digested_at=now, error=clip(error, ERROR_CHARS))
        return len(signals)


def _next_signals() -> list[AlertSignal]:
    """The oldest, in order. A batch that one person's work would fill is half of others', if there are any: what
    one flood of his makes of rules and messages may take a while.
    """
    waiting = AlertSignal.objects.filter(digested_at=None).order_by("pk")
    oldest = list(waiting[:BATCH])
    user, count = Counter(signal.user_id for signal in oldest).most_common(1)[0] if oldest else (None, 0)
    if user is None or len(oldest) < BATCH or count <= BATCH // 2:
        return oldest
    others = list(waiting.exclude(user=user)[: BATCH // 2])
    mine = [signal for signal in oldest if signal.user_id == user][: BATCH - len(others)]
    return sorted([*mine, *others], key=lambda signal: signal.pk)


def _read(signals: Iterable[AlertSignal], errors: dict[int, str]) -> list[Happening]:
    read = []
    for signal in signals:
        try:
            read.append(happening_of(signal))
        except (ValueError, TypeError) as why:
            errors[signal.pk] = f"It cannot be read: {why}"
            logger.error("signal %s is set aside, it cannot be read: %s", signal.pk, why)
    return read


def _take_all(happenings: Sequence[Happening], now: datetime, errors: dict[int, str]) -> None:
    """Rule by rule, each in a savepoint: one that fails takes them one by one, and sets aside what it must."""
    rules = enabled_rules()
    matchers = matchers_of(rules, with_pools=any(each.pool and each.workspace is None for each in happenings))
    goes_on = _rules_with(happenings)
    known = {rule.pk for rule in rules}
    rules += AlertRule.objects.filter(pk__in=goes_on.keys() - known).order_by("pk")
    kinds = {happening.kind for happening in happenings}
    for rule in rules:
        matcher = matchers.get(rule.pk)
        if isinstance(matcher, Exception):
            logger.error("alert rule %s (%s) cannot be read and matches nothing: %s", rule.pk, rule, matcher)
            matcher = None
        ends_here = goes_on.get(rule.pk, set())
        if not ends_here and (matcher is None or kinds.isdisjoint(matcher.kinds)):
            continue
        began: set[str] = set()
        concern: list[Happening] = []
        for happening in happenings:
            if matcher is not None and matcher.matches(happening):
                began.add(happening.subject)
                concern.append(happening)
            elif happening.edge is Edge.ENDED and happening.subject in ends_here | began:
                concern.append(happening)
        if concern:
            _take_safely(rule, matcher or NOTHING, concern, now, errors)


def _rules_with(happenings: Iterable[Happening]) -> dict[int, set[str]]:
    """In the alerts of which rules the subjects go on."""
    subjects = {each.subject for each in happenings}
    rows = AlertMember.objects.filter(subject__in=subjects, ended_at=None).values_list("alert__rule", "subject")
    found: dict[int, set[str]] = defaultdict(set)
    for rule, subject in rows:
        found[rule].add(subject)
    return found


def _take_safely(
    rule: AlertRule, matcher: Matcher, happenings: Sequence[Happening], now: datetime, errors: dict[int, str]
) -> None:
    try:
        with transaction.atomic():
            take_up(rule, happenings, now, matcher)
    except Exception as why:
        if is_away(why):
            raise
        if len(happenings) > 1:
            for happening in happenings:
                _take_safely(rule, matcher, [happening], now, errors)
            return
        logger.exception("signal %s is set aside: rule %s (%s) cannot take it", happenings[0].signal, rule.pk, rule)
        errors[happenings[0].signal] = f"Rule {rule.pk} ({rule}): {why}"


def take(rule: AlertRule, happenings: Iterable[Happening]) -> None:
    """What a watch saw: it began, got worse or ended. What the rule does not match is left out; ends always count."""
    happenings = list(happenings)
    if not happenings:
        return
    with transaction.atomic():
        alert_lock()
        current = AlertRule.objects.filter(pk=rule.pk, enabled=True, retired_at=None).first()
        if current is not None:  # it may have been switched off since it was looked at
            take_up(current, happenings, database_now())


def due() -> int:
    """What time alone brings: what has held long enough opens, what waited for its cooldown or a mute is told, and an
    alert follows its incidents. Returns how many moved.
    """
    moved = 0
    while _to_move(1) or _to_follow(1):
        with transaction.atomic():
            alert_lock()
            count = _move(_to_move(BATCH), _by_time) + _move(_to_follow(BATCH), _by_its_incidents)
        if not count:
            break  # what is left fails, and says so in the log
        moved += count
    return moved


def _to_move(most: int) -> list[int]:
    ready = Q(opens_at__lte=Now()) | Q(tell_at__lte=Now())
    return list(Alert.objects.filter(ready).order_by("pk").values_list("pk", flat=True)[:most])


def _to_follow(most: int) -> list[int]:
    """Open alerts in which nothing goes on but incidents that people have acknowledged."""
    acknowledged = AlertMember.objects.filter(
        ended_at=None,
        kind=AlertKind.INCIDENT.value,
        incident__state=IncidentState.ACKNOWLEDGED.value,
        alert__state=AlertState.OPEN.value,
    )
    others = AlertMember.objects.filter(alert=OuterRef("pk"), ended_at=None).exclude(
        kind=AlertKind.INCIDENT.value, incident__state=IncidentState.ACKNOWLEDGED.value
    )
    found = Alert.objects.filter(pk__in=acknowledged.values("alert")).exclude(Exists(others))
    return list(found.filter(state=AlertState.OPEN.value).order_by("pk").values_list("pk", flat=True)[:most])


def _by_time(alert: Alert, rule: AlertRule, now: datetime) -> list[Entry]:
    return record(alert, alerting.tick(standing_of(alert), pace_of(rule), now), now, words=alert.words)


def _by_its_incidents(alert: Alert, rule: AlertRule, now: datetime) -> list[Entry]:
    if alert.state != AlertState.OPEN.value:
        return []
    acknowledged = Incident.objects.filter(
        pk__in=AlertMember.objects.filter(alert=alert, ended_at=None).values("incident")
    )
    last = acknowledged.select_related("acknowledged_by").order_by("-acknowledged_at").first()
    actor = last.acknowledged_by if last is not None else None
    move = alerting.acknowledge(standing_of(alert), pace_of(rule), now)
    words = f"{actor} has acknowledged its incident." if alert.active == 1 else "All its incidents are acknowledged."
    return record(alert, move, now, words=words, actor=actor)


def _move(ids: Sequence[int], how: Callable[[Alert, AlertRule, datetime], list[Entry]]) -> int:
    """Together; and where that fails, one by one, so that one does not hold up the others."""
    try:
        with transaction.atomic():
            rows = Alert.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=ids).order_by("pk")
            of_rule: dict[AlertRule, list[Alert]] = defaultdict(list)
            for alert in rows.select_related("rule"):
                of_rule[alert.rule].append(alert)
            now = database_now()
            for rule, alerts in of_rule.items():
                entries = [entry for alert in alerts for entry in how(alert, rule, now)]
                store(alerts)
                write_history(rule, entries)
            return len(rows)
    except Exception as why:
        if is_away(why):
            raise
        if len(ids) > 1:
            return sum(_move([pk], how) for pk in ids)
        logger.exception("alert %s cannot be moved", ids)
        return 0
