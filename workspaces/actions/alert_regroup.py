"""What becomes of a rule's alerts when people change the rule. Under the digest's lock, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from django.db.models import Q

from workspaces.domain import alerting
from workspaces.domain.alerts import IDS, AlertKind, AlertState, Edge, Happening
from workspaces.domain.incidents import Severity
from workspaces.models import Alert, AlertMember, AlertRule, AlertSignal
from workspaces.queries.alert_matching import matcher_of

from .alert_book import NOTHING, take_up
from .alert_log import pace_of, record, standing_of, store, write_history


def retime(rule: AlertRule, now: datetime) -> None:
    """Its alerts go by the rule's pace as it is now."""
    goes_on = ~Q(state=AlertState.RESOLVED.value) | Q(tell_at__isnull=False)
    rows = list(Alert.objects.select_for_update(no_key=True).filter(goes_on, rule=rule).order_by("pk"))
    pace = pace_of(rule)
    entries = []
    for alert in rows:
        standing = alerting.repaced(standing_of(alert), pace)
        entries += record(alert, alerting.tick(standing, pace, now), now, words=alert.words)
    store(rows)
    write_history(rule, entries)


def end_all(rule: AlertRule, now: datetime, why: str) -> None:
    """Whatever goes on in its alerts is no longer its matter."""
    take_up(rule, [replace(each, edge=Edge.ENDED) for each in _going_on(rule, now, why)], now, NOTHING)


def regroup(rule: AlertRule, now: datetime, why: str) -> None:
    """What the rule does not match any more leaves its alerts; what belongs to another group goes there."""
    matcher = matcher_of(rule)
    leaves, moves = [], []
    groups = dict(
        AlertMember.objects.filter(alert__rule=rule, ended_at=None).values_list("subject", "alert__group_key")
    )
    for happening in _going_on(rule, now, ""):
        matches = matcher.matches(happening)
        if not matches or matcher.group_of(happening) != groups[happening.subject]:
            leaves.append(replace(happening, edge=Edge.ENDED, words=why))
            moves += [happening] if matches else []
    take_up(rule, leaves, now, matcher)
    take_up(rule, moves, now, matcher)


def _going_on(rule: AlertRule, now: datetime, words: str) -> list[Happening]:
    members = list(AlertMember.objects.filter(alert__rule=rule, ended_at=None).order_by("pk"))
    causes = _causes(members)
    return [
        Happening(
            kind=AlertKind(member.kind),
            edge=Edge.BEGAN,
            subject=member.subject,
            at_s=now.timestamp() if words else member.began_at.timestamp(),
            severity=Severity(member.severity),
            words=words or member.words,
            detail=member.detail,
            cause=causes.get(member.subject, ""),
            data=member.data,
            **{name: getattr(member, f"{name}_id") for name in IDS},
        )
        for member in members
    ]


def _causes(members: Iterable[AlertMember]) -> dict[str, str]:
    """Of what was signalled: a member itself does not say what caused it."""
    subjects = [member.subject for member in members]
    signals = AlertSignal.objects.filter(subject__in=subjects).exclude(edge=Edge.ENDED.value).order_by("pk")
    return dict(signals.values_list("subject", "cause"))
