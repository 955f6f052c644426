"""How an alert lives, what of it is told, and when. Pure: values and the time in, the next state and its changes out.

Always true, whatever comes in whatever order (tests/domain/test_alerting.py):

1. Of what flaps, at most two messages a cooldown are told: an opening (or a growth, or a reminder), and its end. A
   severity that is higher than any told before does not wait for the cooldown: at most three times in an alert's life.
   A person's acknowledgement is told besides.
2. What stays open is told in the end: at the latest when the cooldown and the mute are over, unless a person has
   acknowledged or resolved it.
3. An end is told if and only if receivers believe that it is open, and the rule tells of ends; while the rule is muted,
   after that.
4. Changes are numbered 1, 2, 3 … without gaps. What ended before it had held long enough has none: nobody was told.

Nothing is decided at a moment that is not derived from what is stored: `due` says from the facts alone when the next
message is due, so a mute, a changed rule or a dead process needs no timer to be mended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from workspaces.domain.alerts import AlertState, ChangeKind
from workspaces.domain.incidents import Severity

S, K = AlertState, ChangeKind
LIVE = frozenset({S.OPEN, S.ACKNOWLEDGED})


class Message(StrEnum):
    """What receivers are told."""

    OPENED = "opened"
    UPDATED = "updated"  # it grew, got worse, or is open still
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Known(StrEnum):
    """What receivers believe."""

    NOTHING = "nothing"
    OPEN = "open"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Pace:
    """What a rule says of time. `remind_s` 0: never."""

    hold_s: float = 0.0
    cooldown_s: float = 600.0
    remind_s: float = 0.0
    tell_resolved: bool = True
    muted_until: datetime | None = None

    @property
    def cooldown(self) -> timedelta:
        return timedelta(seconds=self.cooldown_s)


@dataclass(frozen=True, slots=True)
class Change:
    """An entry of the alert's history. `message` None: nobody is told."""

    number: int
    kind: ChangeKind
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an alert stands.

    `active`: troubles that go on. `known_at`: when an opening, growth, rise or reminder was told last. `told_severity`:
    the highest that was told of it, or that a person acknowledged. `unsaid`: troubles that came since the last telling;
    `gathered`: of what only happens. `resolved_before`: of a pending alert that had been open, when that was resolved.
    """

    state: AlertState
    severity: Severity
    began_at: datetime
    active: int = 0
    opens_at: datetime | None = None
    resolved_at: datetime | None = None
    resolved_before: datetime | None = None
    reopened: int = 0
    last_change: int = 0
    known: Known = Known.NOTHING
    known_at: datetime | None = None
    told_severity: Severity | None = None
    unsaid: int = 0
    gathered: int = 0
    tell_at: datetime | None = None

    @property
    def never_opened(self) -> bool:
        """It ended before it had held long enough: there is nothing to keep of it."""
        return self.state is S.RESOLVED and self.last_change == 0

    def told_json(self) -> dict[str, Any]:
        """What is stored of it as JSON; the rest has columns."""
        return {
            "known": self.known.value,
            "at": _text(self.known_at),
            "severity": self.told_severity.value if self.told_severity else "",
            "unsaid": self.unsaid,
            "gathered": self.gathered,
            "resolved_before": _text(self.resolved_before),
        }


def stored(told: dict[str, Any], **columns: Any) -> Standing:
    """From the JSON of `told_json` and an alert's columns."""
    severity = told.get("severity")
    return Standing(
        known=Known(told.get("known", Known.NOTHING)),
        known_at=_time(told.get("at")),
        told_severity=Severity(severity) if severity else None,
        unsaid=told.get("unsaid", 0),
        gathered=told.get("gathered", 0),
        resolved_before=_time(told.get("resolved_before")),
        **columns,
    )


@dataclass(frozen=True, slots=True)
class Move:
    """The next state, and what stands of it in the alert's history, in order."""

    standing: Standing
    changes: tuple[Change, ...] = ()


def fresh(severity: Severity, began_at: datetime, pace: Pace) -> Standing:
    """A new alert, before its first trouble has joined it."""
    return Standing(
        state=S.PENDING, severity=severity, began_at=began_at, opens_at=began_at + timedelta(seconds=pace.hold_s)
    )


def repaced(standing: Standing, pace: Pace) -> Standing:
    """After the rule was changed: how long a pending alert has to hold is what the rule says now."""
    if standing.state is not S.PENDING:
        return standing
    return replace(standing, opens_at=standing.began_at + timedelta(seconds=pace.hold_s))


def goes_back(standing: Standing, pace: Pace, now: datetime) -> bool:
    """Whether a new trouble of the group belongs to this resolved alert, rather than to a new one."""
    if standing.resolved_at is None or standing.tell_at is not None:
        return True
    return now < standing.resolved_at + pace.cooldown


def join(standing: Standing, pace: Pace, now: datetime, *, added: int, severity: Severity, began_at: datetime) -> Move:
    """`added` troubles begin, the gravest of them with `severity`, the first one at `began_at`.

    0 are added where troubles that go on already got worse.
    """
    if standing.state is S.RESOLVED:
        if not added and severity.rank <= standing.severity.rank:
            return Move(standing)  # a person has resolved it, and it is no worse than that
        standing = replace(
            standing,
            state=S.PENDING,
            severity=severity,
            began_at=began_at,
            opens_at=began_at + timedelta(seconds=pace.hold_s),
            resolved_at=None,
            resolved_before=standing.resolved_at,
        )
    worse = severity.rank > standing.severity.rank
    standing = replace(
        standing,
        active=standing.active + added,
        unsaid=standing.unsaid + added,
        severity=severity if worse else standing.severity,
    )
    if standing.state is S.PENDING:
        return tick(standing, pace, now)
    if not added and not worse:
        return Move(standing)
    return _written(standing, pace, now, K.WORSE if worse else K.GREW)


def leave(standing: Standing, pace: Pace, now: datetime, *, left: int) -> Move:
    """`left` troubles have ended. With the last one the alert is resolved."""
    standing = replace(standing, active=max(0, standing.active - left))
    if standing.active or standing.state is S.RESOLVED:
        return Move(standing)
    if standing.state is S.PENDING:
        back = standing.resolved_before or now
        standing = replace(standing, state=S.RESOLVED, opens_at=None, resolved_at=back, resolved_before=None, unsaid=0)
        return Move(_timed(standing, pace, now))
    return resolve(standing, pace, now)


def happen(standing: Standing, pace: Pace, now: datetime, *, count: int, severity: Severity) -> Move:
    """`count` things happened that have no length: an alert that is not open opens, and is resolved in the same breath.

    Within the cooldown they are gathered, and told together when it is over.
    """
    gathered = standing.gathered + count
    if standing.state in LIVE:
        worse = severity.rank > standing.severity.rank
        standing = replace(standing, gathered=gathered, severity=severity if worse else standing.severity)
        return _written(standing, pace, now, K.WORSE if worse else K.GREW)
    if standing.state is S.PENDING and standing.active:
        return _opened(replace(standing, gathered=gathered, severity=_worst(standing, severity)), pace, now)
    before = tick(standing, pace, now)  # an end that a mute held back is told first
    standing = before.standing
    again = standing.last_change > 0
    standing = replace(
        standing,
        state=S.RESOLVED,
        severity=severity,
        opens_at=None,
        resolved_at=now,
        resolved_before=None,
        reopened=standing.reopened + again,
        gathered=standing.gathered + count,
    )
    first = _written(standing, pace, now, K.REOPENED if again else K.OPENED)
    last = replace(first.standing, last_change=first.standing.last_change + 1)
    return Move(last, (*before.changes, *first.changes, Change(last.last_change, K.RESOLVED)))


def tick(standing: Standing, pace: Pace, now: datetime) -> Move:
    """What time alone brings: a pending alert that has held opens, and what waited to be told is told."""
    if standing.state is S.PENDING and standing.active and standing.opens_at and now >= standing.opens_at:
        return _opened(standing, pace, now)
    at = due(standing, pace, now)
    if at is not None and at <= now:
        return _written(standing, pace, now, K.REMINDED)
    return Move(replace(standing, tell_at=at))


def acknowledge(standing: Standing, pace: Pace, now: datetime) -> Move:
    """A person deals with it. From then on only a severity above what was acknowledged is told, and the end."""
    assert standing.state is S.OPEN
    number = standing.last_change + 1
    tells = standing.known is Known.OPEN and not _muted(pace, now)
    standing = replace(
        standing,
        state=S.ACKNOWLEDGED,
        last_change=number,
        told_severity=_worst(standing, standing.told_severity),
        unsaid=0,
        gathered=0,
    )
    change = Change(number, K.ACKNOWLEDGED, Message.ACKNOWLEDGED if tells else None)
    return Move(_timed(standing, pace, now), (change,))


def resolve(standing: Standing, pace: Pace, now: datetime) -> Move:
    """It has ended, or a person says so."""
    assert standing.state in LIVE
    standing = replace(
        standing,
        state=S.RESOLVED,
        resolved_at=now,
        unsaid=0,
        known=Known.RESOLVED if standing.known is Known.OPEN and not pace.tell_resolved else standing.known,
    )
    return _written(standing, pace, now, K.RESOLVED)


def due(standing: Standing, pace: Pace, now: datetime) -> datetime | None:
    """When the next message about it is due, as things stand. None: there is nothing to tell. Past: now."""
    at = _wanted(standing, pace, now)
    if at is not None and pace.muted_until is not None:
        at = max(at, pace.muted_until)
    return at


def _wanted(standing: Standing, pace: Pace, now: datetime) -> datetime | None:
    told = standing.told_severity
    cooled = standing.known_at + pace.cooldown if standing.known_at else now
    match standing.state:
        case S.OPEN:
            if told is None or standing.severity.rank > told.rank:
                return now
            if standing.known is not Known.OPEN or standing.unsaid or standing.gathered:
                return cooled
            if pace.remind_s:
                return max(cooled, (standing.known_at or now) + timedelta(seconds=pace.remind_s))
        case S.ACKNOWLEDGED:
            if told is not None and standing.severity.rank > told.rank:
                return now
        case S.PENDING | S.RESOLVED:
            if standing.known is Known.OPEN:
                return now if pace.tell_resolved else None
            if standing.gathered and standing.state is S.RESOLVED:
                return now if told is None or standing.severity.rank > told.rank else cooled
    return None


def _opened(standing: Standing, pace: Pace, now: datetime) -> Move:
    again = standing.last_change > 0
    standing = replace(
        standing,
        state=S.OPEN,
        opens_at=None,
        resolved_before=None,
        reopened=standing.reopened + again,
    )
    return _written(standing, pace, now, K.REOPENED if again else K.OPENED)


def _written(standing: Standing, pace: Pace, now: datetime, kind: ChangeKind) -> Move:
    """One change more, which is told where something is due."""
    at = due(standing, pace, now)
    message = None
    if at is not None and at <= now:
        standing, message = _said(standing, now)
    standing = replace(standing, last_change=standing.last_change + 1)
    return Move(_timed(standing, pace, now), (Change(standing.last_change, kind, message),))


def _said(standing: Standing, now: datetime) -> tuple[Standing, Message]:
    if standing.state not in LIVE and standing.known is Known.OPEN:
        return replace(standing, known=Known.RESOLVED, gathered=0), Message.RESOLVED  # it says how many there were
    message = Message.UPDATED if standing.known is Known.OPEN else Message.OPENED
    known = Known.OPEN if standing.state in LIVE else Known.RESOLVED
    worst = _worst(standing, standing.told_severity)
    return replace(standing, known=known, known_at=now, told_severity=worst, unsaid=0, gathered=0), message


def _timed(standing: Standing, pace: Pace, now: datetime) -> Standing:
    return replace(standing, tell_at=due(standing, pace, now))


def _worst(standing: Standing, other: Severity | None) -> Severity:
    return max(standing.severity, other or standing.severity, key=lambda each: each.rank)


def _muted(pace: Pace, now: datetime) -> bool:
    return pace.muted_until is not None and now < pace.muted_until


def _text(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
