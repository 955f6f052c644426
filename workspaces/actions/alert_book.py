"""Alerts read and written in bulk: a rule's happenings join, leave and move its alerts, in the caller's transaction.

A thousand troubles of one group are a few statements, one alert, one entry of its history. Who calls it holds the
digest's lock (`alert_lock`); a person's order holds the alert's row alone. No task, account or pool is locked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from django.db import connection

from workspaces import live
from workspaces.domain import alerting
from workspaces.domain.alert_rules import Matcher, grew_words, title_of
from workspaces.domain.alerting import Pace
from workspaces.domain.alerts import IDS, AlertState, Edge, Happening
from workspaces.domain.incidents import Severity
from workspaces.domain.text import clip
from workspaces.models import Alert, AlertMember, AlertRule, AlertSignal
from workspaces.queries.alert_matching import matcher_of, names_of

from .alert_log import WORDS_CHARS, Entry, pace_of, record, standing_of, store, write_history

LOCK = 7_411_907  # the advisory lock of whoever moves alerts in bulk
NOTHING = Matcher(kinds=frozenset())  # of a rule that begins nothing any more: ends count all the same
_SAID = (
    *("kind", "severity", "words", "detail", "data", "began_at", "ended_at", "times"),
    *("pool", "incident", "escalation"),
)


def alert_lock() -> None:
    """Until the end of the transaction nobody else moves alerts in bulk. Waits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


@dataclass
class Line:
    """What a batch says of one trouble under one rule, and what comes of it."""

    subject: str
    started: Happening | None = None  # the newest that says it goes on
    ended: Happening | None = None
    began: int = 0
    first_at_s: float = 0.0
    goes_on: bool = False  # at the end of the batch

    def add(self, happening: Happening) -> None:
        if happening.edge is Edge.ENDED:
            self.ended, self.goes_on = happening, False
            return
        if not self.goes_on:
            self.first_at_s = happening.at_s
        self.began += happening.edge is Edge.BEGAN
        self.started, self.goes_on = happening, True


@dataclass
class Work:
    """All that a batch does to one alert."""

    alert: Alert
    joins: list[tuple[Line, AlertMember | None]] = field(default_factory=list)
    worse: list[tuple[Line, AlertMember]] = field(default_factory=list)
    leaves: list[tuple[Line, AlertMember | None]] = field(default_factory=list)
    happened: list[Happening] = field(default_factory=list)
    notices: dict[str, AlertMember] = field(default_factory=dict)  # of what happened: members already
    again: int = 0  # of the joins: members that went on in an alert that a person had resolved


@dataclass
class Book:
    """One rule, its matcher, and the time of this batch."""

    rule: AlertRule
    matcher: Matcher
    now: datetime
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = pace_of(self.rule)


def take_up(rule: AlertRule, happenings: Iterable[Happening], now: datetime, matcher: Matcher | None = None) -> None:
    """Match, join, tell. `happenings` in the order in which they came; what the rule does not match is left out."""
    book = Book(rule, matcher or matcher_of(rule), now)
    lines: dict[str, Line] = {}
    notices: list[Happening] = []
    for happening in happenings:
        if happening.edge is Edge.ENDED or book.matcher.matches(happening):
            if happening.edge is Edge.HAPPENED:
                notices.append(happening)
            else:
                said = book.matcher.veiled(happening) if happening.edge is Edge.ENDED else happening
                lines.setdefault(said.subject, Line(said.subject)).add(said)
    _end_what_is_over(lines)
    if not lines and not notices:
        return
    active = _active_members(rule, [*lines, *(notice.subject for notice in notices)])
    on = {subject for subject in active if subject not in lines} | {key for key, line in lines.items() if line.goes_on}
    notices = [notice for notice in notices if notice.subject not in on]  # what goes on needs no telling that it is
    works = _sorted_into_alerts(book, lines, notices, active)
    write(book, [work for work in works if _moves(work)])


def _end_what_is_over(lines: Mapping[str, Line]) -> None:
    """A beginning may be read after its end: it was committed later, though it came first."""
    begun = {line.subject: line for line in lines.values() if line.goes_on and line.started and line.started.signal}
    if not begun:
        return
    ends = AlertSignal.objects.filter(subject__in=begun, edge=Edge.ENDED.value, digested_at__isnull=False)
    for pk, subject, words, at in ends.order_by("pk").values_list("pk", "subject", "words", "at"):
        line = begun[subject]
        assert line.started is not None
        if pk > line.started.signal:
            line.add(replace(line.started, edge=Edge.ENDED, words=words, at_s=at.timestamp(), signal=pk))


def _active_members(rule: AlertRule, lines: Iterable[str]) -> dict[str, AlertMember]:
    found = AlertMember.objects.filter(alert__rule=rule, subject__in=list(lines), ended_at=None)
    return {member.subject: member for member in found}


def _locked(ids: Iterable[int]) -> dict[int, Alert]:
    rows = Alert.objects.select_for_update(no_key=True, of=("self",)).filter(pk__in=list(ids)).order_by("pk")
    return {alert.pk: alert for alert in rows}


def _sorted_into_alerts(
    book: Book, lines: Mapping[str, Line], notices: Sequence[Happening], active: Mapping[str, AlertMember]
) -> list[Work]:
    rule, matcher, now = book.rule, book.matcher, book.now
    wanted: dict[str, Happening] = {}
    for line in lines.values():
        if line.started is not None:
            wanted.setdefault(matcher.group_of(line.started), line.started)
    for notice in notices:
        wanted.setdefault(matcher.group_of(notice), notice)
    newest = (
        Alert.objects.filter(rule=rule, group_key__in=list(wanted))
        .order_by("group_key", "-pk")
        .distinct("group_key")
        .values_list("pk", flat=True)
    )
    rows = _locked({*newest, *(member.alert_id for member in active.values())})
    works = {pk: Work(alert) for pk, alert in rows.items()}
    of_group: dict[str, Work] = {}
    for work in works.values():  # by id: the newest of a group stands in the end
        if alerting.goes_back(standing_of(work.alert), book.pace, now):
            of_group[work.alert.group_key] = work

    def group(happening: Happening) -> Work:
        key = matcher.group_of(happening)
        if key not in of_group:
            of_group[key] = Work(_new_alert(book, key, happening))
        return of_group[key]

    rejoin = [(line, group(line.started)) for line in lines.values() if line.started and line.subject not in active]
    known = _members({work.alert.pk for _, work in rejoin if work.alert.pk}, [line.subject for line, _ in rejoin])
    for line, work in rejoin:
        if line.goes_on or not _too_short(line, book):
            work.joins.append((line, known.get((work.alert.pk, line.subject))))
            if not line.goes_on:
                work.leaves.append((line, None))
    for subject, member in active.items():
        if subject not in lines:
            continue
        line, work = lines[subject], works[member.alert_id]
        if not line.goes_on:
            work.leaves.append((line, member))
        elif line.started and line.began and work.alert.state == AlertState.RESOLVED.value:
            into = group(line.started)
            into.joins.append((line, member if into is work else None))
            if into is work:
                work.again += 1
            else:
                work.leaves.append((line, member))
        else:
            work.worse.append((line, member))
    for notice in notices:
        group(notice).happened.append(notice)
    return [*works.values(), *(work for work in of_group.values() if work.alert.pk is None)]


def _too_short(line: Line, book: Book) -> bool:
    """It began and ended within this batch, and did not hold as long as the rule says."""
    assert line.ended is not None
    return line.ended.at_s - line.first_at_s < book.pace.hold_s


def _members(alerts: Iterable[int], subjects: Iterable[str]) -> dict[tuple[int, str], AlertMember]:
    if not (ids := list(alerts)):
        return {}
    found = AlertMember.objects.filter(alert__in=ids, subject__in=list(subjects))
    return {(member.alert_id, member.subject): member for member in found}


def _moves(work: Work) -> bool:
    return bool(work.joins or work.worse or work.leaves or work.happened)


def _new_alert(book: Book, key: str, happening: Happening) -> Alert:
    return Alert(
        rule=book.rule,
        group_key=key,
        user_id=book.rule.owner_id,
        workspace_id=happening.workspace if book.matcher.in_one_workspace(happening) else None,
        kind=happening.kind.value,
        severity=book.matcher.severity_of(happening).value,
        state=AlertState.PENDING.value,
        began_at=_time(happening.at_s),
        changed_at=book.now,
    )


def write(book: Book, works: Sequence[Work]) -> None:
    """Each alert moves, and what comes of it is stored and queued: a few statements, however many there are."""
    _title(book, works)
    entries: list[Entry] = []
    kept: list[Work] = []
    gone: list[int] = []
    for work in works:
        found, never_opened = _move(book, work)
        if never_opened:
            gone += [work.alert.pk] if work.alert.pk is not None else []
        else:
            entries += found
            kept.append(work)
    if gone:
        Alert.objects.filter(pk__in=gone).delete()
        live.alerts_changed()
    store([work.alert for work in kept])
    _store_members(book, kept)
    write_history(book.rule, entries)


def _title(book: Book, works: Sequence[Work]) -> None:
    news = [(work, _lead(book, work)) for work in works if work.alert.pk is None]
    names = names_of([lead for _, lead in news])
    for work, lead in news:
        work.alert.title = title_of(book.rule.name, book.matcher, lead, names)


def _lead(book: Book, work: Work) -> Happening:
    """The gravest of what came, the newest of them."""
    came = [line.started for line, _ in (*work.joins, *work.worse) if line.started] + work.happened
    return max(came, key=lambda each: (book.matcher.severity_of(each).rank, each.at_s))


def _move(book: Book, work: Work) -> tuple[list[Entry], bool]:
    """What stands of it in the alert's history; and whether it ended before it opened."""
    alert, pace, now, rank = work.alert, book.pace, book.now, book.matcher.severity_of
    came = [line.started for line, _ in (*work.joins, *work.worse) if line.started]
    entries: list[Entry] = []
    if alert.pk is None:
        first_at_s = min([line.first_at_s for line, _ in work.joins] + [each.at_s for each in work.happened])
        standing = alerting.fresh(Severity(alert.severity), min(_time(first_at_s), now), pace)
    else:
        standing = standing_of(alert)
    if came or work.happened:
        alert.words = clip(_lead(book, work).words, WORDS_CHARS)
    if came:
        began_at = min(_time(min((line.first_at_s for line, _ in work.joins), default=now.timestamp())), now)
        gravest = max((rank(each) for each in came), key=lambda severity: severity.rank)
        added = len(work.joins)
        alert.troubles += sum(member is None for _, member in work.joins)
        standing = replace(standing, active=standing.active - work.again)
        move = alerting.join(standing, pace, now, added=added, severity=gravest, began_at=began_at)
        standing = move.standing
        entries += record(alert, move, now, words=_grown(alert, added, standing), data={"added": added})
    if work.happened:
        gravest = max((rank(each) for each in work.happened), key=lambda severity: severity.rank)
        work.notices = _known_notices(work)
        alert.troubles += len({each.subject for each in work.happened} - work.notices.keys())
        move = alerting.happen(standing, pace, now, count=len(work.happened), severity=gravest)
        standing = move.standing
        words = alert.words if len(work.happened) == 1 else f"{len(work.happened):,} at once. {alert.words}"
        entries += record(alert, move, now, words=words, data={"added": len(work.happened)})
    if work.leaves:
        move = alerting.leave(standing, pace, now, left=len(work.leaves))
        standing = move.standing
        last = next((line.ended for line, _ in reversed(work.leaves) if line.ended), None)
        words = last.words if last is not None else ""
        entries += record(alert, move, now, words=words, data={"ended": len(work.leaves)})
    return entries, standing.never_opened


def _grown(alert: Alert, added: int, standing: alerting.Standing) -> str:
    if not added or alert.troubles <= 1:
        return alert.words
    if alert.troubles == added:
        return f"{added:,} at once. {alert.words}"
    return f"{grew_words(added=added, ended=0, active=standing.active, troubles=alert.troubles)}. {alert.words}"


def _known_notices(work: Work) -> dict[str, AlertMember]:
    if work.alert.pk is None:
        return {}
    subjects = {each.subject for each in work.happened}
    return {member.subject: member for member in work.alert.members.filter(subject__in=subjects)}


def _store_members(book: Book, works: Sequence[Work]) -> None:
    new: list[AlertMember] = []
    changed: list[AlertMember] = []
    ended: list[AlertMember] = []
    for work in works:
        made: dict[str, AlertMember] = {}
        joined = {line.subject for line, _ in work.joins}
        for line, member in (*work.joins, *work.worse):
            assert line.started is not None
            row = member or AlertMember(alert=work.alert, subject=line.subject, times=0)
            if line.subject in joined:
                row.began_at, row.ended_at = _time(line.first_at_s), None
            row.times += max(line.began, member is None)
            _say(row, line.started, book)
            (new if member is None else changed).append(row)
            made[line.subject] = row
        for happening in work.happened:
            known = made.get(happening.subject) or work.notices.get(happening.subject)
            told = known or AlertMember(alert=work.alert, subject=happening.subject, times=0)
            if happening.subject not in made:
                (changed if known else new).append(told)
            told.began_at = told.ended_at = _time(happening.at_s)
            told.times += 1
            _say(told, happening, book)
            made[happening.subject] = told
        for line, member in work.leaves:
            over = member or made[line.subject]
            over.ended_at = max(_time(line.ended.at_s) if line.ended else book.now, over.began_at)
            if over.pk is not None:
                ended.append(over)
    AlertMember.objects.bulk_create(new, batch_size=1_000)
    AlertMember.objects.bulk_update(changed, _SAID, batch_size=200)
    _end(ended)


def _end(members: Sequence[AlertMember]) -> None:
    if not members:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE workspaces_alertmember AS m SET ended_at = over.at"
            " FROM unnest(%s::bigint[], %s::timestamptz[]) AS over(id, at) WHERE m.id = over.id",
            [[member.pk for member in members], [member.ended_at for member in members]],
        )


def _say(row: AlertMember, happening: Happening, book: Book) -> None:
    row.kind = happening.kind.value
    row.severity = book.matcher.severity_of(happening).value
    row.words = happening.words
    row.detail = happening.detail
    row.data = happening.data
    for name in IDS:
        setattr(row, f"{name}_id", getattr(happening, name))


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
