"""A quota pool under its row's lock: read in one round trip, written back in one. Decides nothing; see quotas.py.

Nobody else writes a pool's state, shares or claims. What a pool's numbers mean is in domain/quotas.py and its
neighbours; here they are rows. Times are the database's, read after the lock was had: they only rise from one holder
to the next.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from workspaces.domain.quotas import Claim, Limits, PoolState, Share
from workspaces.domain.states import ClaimState, NoticeKind
from workspaces.domain.text import clean_text

_PLACE = (
    "c.task_id, c.user_id, c.state, c.tag, c.task_finish, c.interactive, c.input_tokens, c.output_tokens, c.retry,"
    " extract(epoch FROM c.not_before)::float8, extract(epoch FROM c.queued_at)::float8,"
    " extract(epoch FROM c.granted_at)::float8, extract(epoch FROM c.expires_at)::float8, c.model_call_id, c.cost"
)
_SHARE = "s.user_id, s.weight, s.finish, s.open, extract(epoch FROM s.used_at)::float8, s.clock"
_OF_SHARE, _OF_PLACE = _SHARE.count(", ") + 1, 15  # columns

# Two statements. The second sees what whoever held the lock before has committed: joined to the first, the share and
# the claim would be those of before the wait.
_LOCK = """
SELECT name, provider, limits, learned, policy, state, circuit FROM workspaces_quotapool
 WHERE id = %s FOR NO KEY UPDATE
"""
_OPEN = f"""
SELECT extract(epoch FROM clock_timestamp())::float8, {_SHARE}, {_PLACE},
       EXISTS (SELECT FROM workspaces_quotaclaim
                WHERE pool_id = %(pool)s AND user_id = %(user)s AND state = 'waiting' AND task_id <> %(task)s)
  FROM (SELECT) AS one
  LEFT JOIN workspaces_quotashare s ON s.pool_id = %(pool)s AND s.user_id = %(user)s
  LEFT JOIN workspaces_quotaclaim c ON c.pool_id = %(pool)s AND c.task_id = %(task)s
"""  # noqa: S608 - constants

# Who may be next: users by their places, and of each whom it would send first.
_QUEUE = f"""
SELECT {_PLACE}, t.status = 'waiting' AND t.waiting_for = 'quota', {_SHARE}
  FROM (SELECT s.*, c.id AS claim
          FROM workspaces_quotashare s
         CROSS JOIN LATERAL (SELECT id FROM workspaces_quotaclaim
                WHERE pool_id = s.pool_id AND user_id = s.user_id AND state = 'waiting'
                  AND (not_before IS NULL OR not_before <= to_timestamp(%(now)s))
                  AND (%(retries)s OR NOT retry) LIMIT 1) AS c
         WHERE s.pool_id = %(pool)s AND s.open > 0
         ORDER BY s.finish, s.user_id LIMIT %(users)s) AS s
 CROSS JOIN LATERAL (SELECT * FROM workspaces_quotaclaim
         WHERE pool_id = s.pool_id AND user_id = s.user_id AND state = 'waiting'
           AND (not_before IS NULL OR not_before <= to_timestamp(%(now)s)) AND (%(retries)s OR NOT retry)
         ORDER BY interactive DESC, task_finish, queued_at, task_id LIMIT %(each)s) AS c
  JOIN workspaces_task t ON t.id = c.task_id
"""  # noqa: S608 - constants


MOST_READ = 500  # waiting claims, to tell a place by


class NoSuchPool(Exception):
    """It is not there (any more)."""


@dataclass(slots=True)
class Place:
    """A claim and the row's own columns: where it stands, until when, and for which call."""

    claim: Claim
    state: ClaimState = ClaimState.IDLE
    expires_at: float | None = None
    model_call: int | None = None
    # as far as one can see without a lock on its task
    still_waits: bool = True  # for quota
    may_come: bool = True  # it is neither paused nor over


@dataclass(slots=True)
class Book:
    """What may be changed until `write`. `shares` by user, `places` by task: only those that were read or made."""

    pool_id: int
    name: str
    provider: str
    now: float
    by_hand: dict[str, Any]
    limits: Limits  # that hold: those set by hand, never above what the provider says
    learned: dict[str, Any]
    policy: dict[str, Any]
    state: PoolState
    circuit: str  # as it is stored, until `write`
    others_wait: bool  # of the user's, besides the task that the book was opened for
    shares: dict[int, Share] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)  # tasks whose places are to be written
    shares_changed: set[int] = field(default_factory=set)
    minute: Counter[str] = field(default_factory=Counter)
    waited_s: float = 0.0
    waited_for: int | None = None  # the model call that had waited so long
    longest_queue: int = 0
    notices: list[tuple[NoticeKind, str, dict[str, Any], int | None, int | None]] = field(default_factory=list)
    blocked_reason: str | None = None
    learned_changed: bool = False
    granted: list[int] = field(default_factory=list)  # tasks to be woken once this is committed

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def share(self, user: int) -> Share:
        """To be changed."""
        self.shares_changed.add(user)
        return self.shares.setdefault(user, Share())

    def place(self, task: int) -> Place:
        """To be changed."""
        self.changed.add(task)
        return self.places[task]

    def notice(
        self, kind: NoticeKind, words: str, *, task: int | None = None, model_call: int | None = None, **data: Any
    ) -> None:
        self.notices.append((kind, words, data, task, model_call))


def open_book(pool_id: int, *, user: int = 0, task: int = 0) -> Book:
    """The pool, locked until the transaction ends, with one task's place and its user's share. Raises NoSuchPool."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [pool_id])
        row = cursor.fetchone()
        if row is None:
            raise NoSuchPool(f"there is no quota pool {pool_id}")
        cursor.execute(_OPEN, {"pool": pool_id, "user": user, "task": task})
        known = cursor.fetchone()
    name, provider, limits, learned, policy, state, circuit = row
    by_hand, learned_json = _json(limits), _json(learned)
    book = Book(
        pool_id=pool_id,
        name=name,
        provider=provider,
        now=known[0],
        by_hand=by_hand,
        limits=Limits.binding(by_hand, learned_json),
        learned=learned_json,
        policy=_json(policy),
        state=PoolState.from_json(_json(state)),
        circuit=circuit,
        others_wait=known[-1],
    )
    share, claim = known[1 : 1 + _OF_SHARE], known[1 + _OF_SHARE : 1 + _OF_SHARE + _OF_PLACE]
    _take_share(book, share)
    if claim[0] is not None:
        book.places[claim[0]] = _place(claim)
    return book


def read_queue(book: Book, *, users: int, each: int, retries: bool) -> list[Place]:
    """Waiting claims whose time has come, without `retries` only first tries: of the first users, each one's first.

    What was changed in the book and is not written yet must not be asked for again: read once a book.
    """
    with connection.cursor() as cursor:
        of = {"pool": book.pool_id, "now": book.now, "users": users, "each": each, "retries": retries}
        cursor.execute(_QUEUE, of)
        rows = cursor.fetchall()
    found = []
    for row in rows:
        task = row[0]
        claim, still_waits, share = row[:_OF_PLACE], row[_OF_PLACE], row[_OF_PLACE + 1 :]
        place = book.places.setdefault(task, _place(claim))
        if place.state is ClaimState.WAITING:
            place.still_waits = bool(still_waits) or task in book.changed
            found.append(place)
        _take_share(book, share)
    return found


_SOME = f"""
SELECT {_PLACE}, t.status = 'waiting' AND t.waiting_for = 'quota',
       t.status IN ('waiting', 'queued', 'running', 'pausing'), {_SHARE}
  FROM workspaces_quotaclaim c
  JOIN workspaces_quotashare s ON s.pool_id = c.pool_id AND s.user_id = c.user_id
  JOIN workspaces_task t ON t.id = c.task_id
 WHERE c.pool_id = %s AND c.task_id = ANY(%s)
"""  # noqa: S608 - constants


def read_places(book: Book, tasks: Sequence[int]) -> list[Place]:
    """Those of some tasks."""
    if not tasks:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_SOME, [book.pool_id, list(tasks)])
        rows = cursor.fetchall()
    for row in rows:
        place = book.places[row[0]] = _place(row[:_OF_PLACE])
        place.still_waits, place.may_come = (bool(said) for said in row[_OF_PLACE : _OF_PLACE + 2])
        _take_share(book, row[_OF_PLACE + 2 :])
    return [book.places[row[0]] for row in rows]


_LINES = f"""
SELECT {_PLACE}, {_SHARE}
  FROM workspaces_quotaclaim c
  JOIN workspaces_quotashare s ON s.pool_id = c.pool_id AND s.user_id = c.user_id
 WHERE c.pool_id = %s AND c.state = 'waiting' ORDER BY s.finish, c.user_id LIMIT {MOST_READ}
"""  # noqa: S608 - constants


def read_lines(book: Book) -> list[tuple[Share, list[Claim]]]:
    """Who waits, each user's claims by its share, as they are in the book: to tell a place in the queue by."""
    with connection.cursor() as cursor:
        cursor.execute(_LINES, [book.pool_id])
        rows = cursor.fetchall()
    found: dict[int, list[Claim]] = {}
    shares: dict[int, Share] = {}
    for row in rows:
        task, user = row[0], row[1]
        if task not in book.places:
            found.setdefault(user, []).append(_place(row[:_OF_PLACE]).claim)
        shares[user] = book.shares.get(user) or _share(row[_OF_PLACE:])
    for place in book.places.values():
        if place.state is ClaimState.WAITING:
            user = place.claim.user
            found.setdefault(user, []).append(place.claim)
            shares[user] = book.shares[user]
    return [(shares[user], claims) for user, claims in found.items()]


def _take_share(book: Book, row: Sequence[Any]) -> None:
    if row[0] is not None and row[0] not in book.shares:
        book.shares[row[0]] = _share(row)


def _share(row: Sequence[Any]) -> Share:
    _, weight, finish, opened, used_at, clock = row
    return Share(weight=weight, finish=finish, clock=clock, open=opened, used_at=used_at or 0.0)


def _place(row: Sequence[Any]) -> Place:
    task, user, state, tag, task_finish, interactive, into, out, retry, *times, call, cost = row
    not_before, queued, granted, expires = times
    claim = Claim(
        user=user,
        task=task,
        input_tokens=into,
        output_tokens=out,
        queued_at=queued or 0.0,
        interactive=interactive,
        retry=retry,
        not_before=not_before,
        task_finish=task_finish,
        tag=tag,
        granted_at=granted,
        cost=cost,
    )
    return Place(claim, ClaimState(state), expires, call)


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


_PLACE_COLUMNS = (
    *("pool_id", "task_id", "user_id", "state", "tag", "task_finish", "interactive", "input_tokens", "output_tokens"),
    *("retry", "not_before", "queued_at", "granted_at", "expires_at", "model_call_id", "cost"),
)
_PLACE_ROW = (
    "(%s, %s, %s, %s, %s::float8, %s::float8, %s, %s, %s, %s, to_timestamp(%s), to_timestamp(%s),"
    " to_timestamp(%s), to_timestamp(%s), %s::bigint, %s::float8)"
)
_MINUTE = ("calls", "input_tokens", "output_tokens", "refusals", "retries", "waits")


def write(book: Book) -> None:
    """All of it in one statement."""
    parts: list[str] = []
    values: list[Any] = []
    if book.changed:
        rows = [_place_values(book.pool_id, book.places[task]) for task in sorted(book.changed)]
        parts.append(_upsert("quotaclaim", _PLACE_COLUMNS, ("pool_id", "task_id"), [_PLACE_ROW] * len(rows)))
        values += [value for row in rows for value in row]
    if book.shares_changed:
        columns = ("pool_id", "user_id", "weight", "finish", "clock", "open", "used_at")
        row = "(%s, %s, %s::float8, %s::float8, %s::float8, %s, to_timestamp(%s))"
        updated = ("finish", "clock", "open", "used_at")  # the weight is set by people
        users = sorted(book.shares_changed)
        parts.append(_upsert("quotashare", columns, ("pool_id", "user_id"), [row] * len(users), updated))
        for user in users:
            share = book.shares[user]
            values += [book.pool_id, user, share.weight, share.finish, share.clock, share.open, share.used_at or None]
    if any(book.minute.values()) or book.waited_s or book.longest_queue:
        parts.append(_MINUTE_SQL)
        values += [book.pool_id, book.now, *(book.minute[name] for name in _MINUTE), book.waited_s, book.longest_queue]
    if book.waited_for is not None:
        parts.append("UPDATE workspaces_modelcall SET waited_s = %s WHERE id = %s")
        values += [book.waited_s, book.waited_for]
    if book.notices:
        row = "(%s, %s, to_timestamp(%s), %s, %s::jsonb, %s::bigint, %s::bigint)"
        parts.append(
            "INSERT INTO workspaces_quotanotice (pool_id, kind, at, words, data, task_id, model_call_id)"  # noqa: S608
            f" VALUES {', '.join([row] * len(book.notices))}"
        )
        for kind, words, data, task, call in book.notices:
            values += [book.pool_id, kind.value, book.now, clean_text(words), json.dumps(data), task, call]
    statement, of_pool = _pool_update(book)
    if parts:
        statement = f"WITH {', '.join(f'part_{at} AS ({sql})' for at, sql in enumerate(parts))} {statement}"
    with connection.cursor() as cursor:
        cursor.execute(statement, [*values, *of_pool])


def _pool_update(book: Book) -> tuple[str, list[Any]]:
    state = book.state
    blocked = max(state.blocked_until, state.open_until if state.circuit == "open" else 0.0)
    sets = "state = %s::jsonb, circuit = %s, blocked_until = to_timestamp(%s)"
    values: list[Any] = [json.dumps(state.as_json()), state.circuit, blocked if blocked > book.now else None]
    if book.blocked_reason is not None:
        sets += ", blocked_reason = %s"
        values.append(clean_text(book.blocked_reason))
    if book.learned_changed:
        sets += ", learned = %s::jsonb"
        values.append(json.dumps(book.learned))
    return f"UPDATE workspaces_quotapool SET {sets} WHERE id = %s", [*values, book.pool_id]  # noqa: S608


_MINUTE_SQL = f"""
INSERT INTO workspaces_quotaminute AS m (pool_id, minute, {", ".join(_MINUTE)}, waited_s, longest_queue)
VALUES (%s, date_trunc('minute', to_timestamp(%s), 'UTC'), {", ".join(["%s"] * len(_MINUTE))}, %s, %s)
ON CONFLICT (pool_id, minute) DO UPDATE SET
{", ".join(f"{name} = m.{name} + EXCLUDED.{name}" for name in (*_MINUTE, "waited_s"))},
longest_queue = greatest(m.longest_queue, EXCLUDED.longest_queue)
"""  # noqa: S608 - constants


def _place_values(pool_id: int, place: Place) -> list[Any]:
    claim = place.claim
    return [
        *(pool_id, claim.task, claim.user, place.state.value, claim.tag, claim.task_finish, claim.interactive),
        *(claim.input_tokens, claim.output_tokens, claim.retry, claim.not_before, claim.queued_at or None),
        *(claim.granted_at, place.expires_at, place.model_call, claim.cost),
    ]


def _upsert(
    table: str, columns: Iterable[str], key: Sequence[str], rows: Sequence[str], updated: Sequence[str] = ()
) -> str:
    names = list(columns)
    changed = updated or [name for name in names if name not in key]
    return (
        f"INSERT INTO workspaces_{table} ({', '.join(names)}) VALUES {', '.join(rows)}"  # noqa: S608
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in changed)}"
    )
