"""The courier's book: what it takes to send, and what became of each try. Sends nothing itself.

1. `claim` takes what is due under its endpoint's row lock, so that no two workers take the same message, no later
   message of an alert goes before an earlier one, and at most IN_THE_AIR of an endpoint are under way. The try is
   written before it is made. 2. The courier sends. 3. `finished` writes what came of it, under the same lock.
A worker that dies between 1 and 3 leaves a try that is begun and not ended: nobody knows whether it arrived, so when
its lease is over the message is sent again, with the same id.

Lock order: endpoint → delivery. Rows of alerts are never locked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography.fernet import InvalidToken
from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest

from workspaces import live
from workspaces.domain.endpoints import AttemptOutcome, DeliveryState, EndpointKind, EndpointState
from workspaces.domain.sending import hold_s, pause_s
from workspaces.models import Delivery, DeliveryAttempt, Endpoint, EndpointSecret

from .clock import database_now
from .endpoint_failures import failed_for_long, give_up_endpoint

LEASE = timedelta(seconds=45)  # a try ends within 20 s (engine/transports/base.TOTAL_S); the rest is for the database
IN_THE_AIR = 4  # tries of one endpoint
IN_THE_AIR_FAILING = 1  # while its newest answer was a bad one
OF_ONE_OWNER = 64  # tries of one person's endpoints by one process: a hundred slow ones leave room for others
LOOKED_AT = 200  # messages of one endpoint, of which those are taken that no earlier one holds up
RECOVERED_AFTER = timedelta(seconds=20)  # of failing: then an answer makes due at once what waits
S, Out = DeliveryState, AttemptOutcome
_NOT_OURS = frozenset((Out.FAULT, Out.DELIVERED))


@dataclass(frozen=True, slots=True)
class Claimed:
    """One message that this worker is to send now. `problem`: why it cannot be, whatever its receiver does."""

    delivery: int
    endpoint: int
    fence: int
    attempt: int
    message_id: str
    type: str
    kind: EndpointKind
    body: Mapping[str, Any]
    address: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    problem: str = ""
    failing: bool = False  # the endpoint's newest answer was a bad one
    owner: int | None = None  # None: the site's


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a try. `permanent`: another would end in the same way."""

    outcome: AttemptOutcome
    duration_ms: int = 0
    error: str = ""
    permanent: bool = False
    retry_after_s: float | None = None
    address: str = ""
    request_headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response_body: str = ""


def claim(limit: int, *, failing_limit: int | None = None, flying: Mapping[int, int] | None = None) -> list[Claimed]:
    """At most `limit` messages that are due, those of failing endpoints at most `failing_limit` of them.

    `flying`: by owner, how many this process is sending already.

    Endpoints take turns: each gives its first one before any gives its second.
    """
    if limit <= 0:
        return []
    with transaction.atomic():
        flying = flying or {}
        endpoints = _due_endpoints(limit, [owner for owner, tries in flying.items() if tries >= OF_ONE_OWNER])
        now = database_now()  # under the locks: later than the end of whatever these endpoints were sent before
        picked = _picked(endpoints, now, limit, limit if failing_limit is None else failing_limit, flying)
        if not picked:
            return []
        rows = list(Delivery.objects.select_for_update(no_key=True).filter(pk__in=picked).order_by("pk"))
        secrets = _secrets(endpoints, now)
        attempts = DeliveryAttempt.objects.bulk_create(
            DeliveryAttempt(delivery=row, number=row.attempts_made + 1, begun_at=now) for row in rows
        )
        Delivery.objects.filter(pk__in=picked).update(
            attempts_made=F("attempts_made") + 1, fence=F("fence") + 1, leased_until=now + LEASE
        )
    order = {pk: place for place, pk in enumerate(picked)}
    claims = [
        _claimed(row, endpoints[row.endpoint_id], attempt.pk, secrets.get(row.endpoint_id, []))
        for row, attempt in zip(rows, attempts, strict=True)
    ]
    return sorted(claims, key=lambda one: order[one.delivery])


def finished(claimed: Claimed, result: Result, *, chance: float = 0.5) -> DeliveryState:
    """Write what came of a try, and when the next one is. `chance` in [0, 1) spreads retries.

    Who lost the message to another worker meanwhile writes the try only. Returns what the message is now.
    """
    with transaction.atomic():
        endpoint = Endpoint.objects.select_for_update(no_key=True).get(pk=claimed.endpoint)
        row = Delivery.objects.select_for_update(no_key=True).get(pk=claimed.delivery)
        now = database_now()
        _write(claimed.attempt, result)
        live.alerts_changed()
        if row.fence != claimed.fence:
            return S(row.state)
        arrived = result.outcome is Out.DELIVERED
        if row.state == S.FAILED.value and arrived:  # given up with its endpoint while it was under way
            Delivery.objects.filter(pk=row.pk).update(state=S.DELIVERED.value, leased_until=None, error="")
            return S.DELIVERED
        if row.state != S.PENDING.value:
            Delivery.objects.filter(pk=row.pk).update(leased_until=None)
            return S(row.state)
        if arrived:
            _delivered(endpoint, row, now)
            return S.DELIVERED
        return _failed(endpoint, row, result, now, chance)


def put_back(claimed: Sequence[Claimed], words: str) -> None:
    """This worker ends before these were answered: others may send them at once. Whether they arrived is not known."""
    with transaction.atomic():
        now = database_now()
        DeliveryAttempt.objects.filter(pk__in=[one.attempt for one in claimed], outcome=Out.BEGUN.value).update(
            error=words
        )
        for one in sorted(claimed, key=lambda each: (each.endpoint, each.delivery)):
            mine = Delivery.objects.filter(pk=one.delivery, fence=one.fence, state=S.PENDING.value)
            mine.update(leased_until=None, next_at=now)


def give_up_stranded() -> int:
    """What was queued while its endpoint was being switched off or removed: neither saw the other. And what waits for
    a mailbox that nobody has confirmed within its day. Returns how many.

    An alert's lock cannot wait for an endpoint's (see the lock order), so that is mended here, within a second.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE workspaces_delivery AS delivery
               SET state = CASE endpoint.state WHEN 'removed' THEN 'cancelled' ELSE 'failed' END,
                   finished_at = statement_timestamp(),
                   error = CASE endpoint.state WHEN 'unconfirmed' THEN %s ELSE %s END
              FROM workspaces_endpoint AS endpoint
             WHERE endpoint.id = delivery.endpoint_id AND delivery.id IN (
                SELECT waits.id FROM workspaces_delivery AS waits
                  JOIN workspaces_endpoint AS off ON off.id = waits.endpoint_id
                 WHERE (off.state IN ('disabled', 'failed', 'removed')
                        OR off.state = 'unconfirmed' AND waits.expires_at <= statement_timestamp())
                   AND waits.state = 'pending' AND waits.alert_id IS NOT NULL
                 ORDER BY waits.id LIMIT 1000 FOR UPDATE OF waits SKIP LOCKED)
            """,
            [
                "Given up after 24 hours: nobody had confirmed its address.",
                "Its endpoint was switched off or removed at that moment.",
            ],
        )
        return cursor.rowcount


def _due_endpoints(limit: int, without: Sequence[int]) -> dict[int, Endpoint]:
    """Locked, and skipped where another worker has it: that one goes on with it. Healthy ones first, else by lot; none
    of the owners `without`.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT endpoint.id FROM workspaces_endpoint AS endpoint
             WHERE endpoint.state NOT IN ('removed', 'unconfirmed')
               AND (endpoint.owner_id IS NULL OR endpoint.owner_id <> ALL(%(without)s::bigint[]))
               AND (endpoint.held_until IS NULL OR endpoint.held_until <= statement_timestamp())
               AND EXISTS (SELECT FROM workspaces_delivery AS delivery
                            WHERE delivery.endpoint_id = endpoint.id AND delivery.state = 'pending'
                              AND delivery.next_at <= statement_timestamp()
                              AND (delivery.leased_until IS NULL OR delivery.leased_until <= statement_timestamp())
                              AND (endpoint.state = 'enabled' OR delivery.alert_id IS NULL))
             ORDER BY endpoint.failures > 0, random() LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
            """,
            {"limit": limit, "without": list(without)},
        )
        found = [pk for (pk,) in cursor.fetchall()]
    return Endpoint.objects.select_related("owner").in_bulk(found)


def _picked(
    endpoints: Mapping[int, Endpoint], now: datetime, limit: int, failing_limit: int, flying: Mapping[int, int]
) -> list[int]:
    """Ids of messages, in turns."""
    if not endpoints:
        return []
    rooms = [IN_THE_AIR_FAILING if endpoint.failures else IN_THE_AIR for endpoint in endpoints.values()]
    enabled = [endpoint.state == EndpointState.ENABLED.value for endpoint in endpoints.values()]
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT endpoint.id, picked.id, picked.turn
              FROM unnest(%(ids)s::bigint[], %(rooms)s::int[], %(enabled)s::bool[]) AS endpoint(id, room, enabled)
             CROSS JOIN LATERAL (
                SELECT count(*) AS tries FROM workspaces_delivery
                 WHERE endpoint_id = endpoint.id AND state = 'pending' AND leased_until > %(now)s) AS flying
             CROSS JOIN LATERAL (
                SELECT mine.id, row_number() OVER (ORDER BY mine.next_at, mine.id) AS turn FROM (
                    SELECT id, alert_id, number, next_at FROM workspaces_delivery
                     WHERE endpoint_id = endpoint.id AND state = 'pending' AND next_at <= %(now)s
                       AND (leased_until IS NULL OR leased_until <= %(now)s)
                       AND (endpoint.enabled OR alert_id IS NULL) AND endpoint.room > flying.tries
                     ORDER BY next_at, id LIMIT %(looked_at)s) AS mine
                 WHERE NOT EXISTS (
                    SELECT FROM workspaces_delivery AS earlier
                     WHERE earlier.endpoint_id = endpoint.id AND earlier.alert_id = mine.alert_id
                       AND earlier.state = 'pending' AND earlier.number < mine.number)) AS picked
             WHERE picked.turn <= endpoint.room - flying.tries
             ORDER BY picked.turn
            """,
            {
                "ids": list(endpoints),
                "rooms": rooms,
                "enabled": enabled,
                "now": now,
                "looked_at": LOOKED_AT,
            },
        )
        rows = cursor.fetchall()
    picked: list[int] = []
    failing = 0
    of_owner = Counter(flying)
    for endpoint, delivery, _ in rows:
        owner = endpoints[endpoint].owner_id
        if owner is not None and of_owner[owner] >= OF_ONE_OWNER:
            continue
        if endpoints[endpoint].failures:
            failing += 1
            if failing > failing_limit:
                continue
        if owner is not None:
            of_owner[owner] += 1
        picked.append(delivery)
    return picked[:limit]


def _secrets(endpoints: Mapping[int, Endpoint], now: datetime) -> dict[int, list[EndpointSecret]]:
    """Those that are valid, the newest first; two of each at most."""
    found: dict[int, list[EndpointSecret]] = {}
    valid = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    for secret in EndpointSecret.objects.filter(valid, endpoint__in=endpoints).order_by("-id"):
        found.setdefault(secret.endpoint_id, []).append(secret)
    return {endpoint: rows[:2] for endpoint, rows in found.items()}


def _claimed(row: Delivery, endpoint: Endpoint, attempt: int, secrets: list[EndpointSecret]) -> Claimed:
    opened: tuple[str, ...] = ()
    address = problem = ""
    try:
        address = endpoint.open_address()
        opened = tuple(secret.open() for secret in secrets)
    except InvalidToken:
        problem = "Its secret cannot be opened: the site's encryption key has changed. Set the address and secret anew."
    if endpoint.owner is not None and not endpoint.owner.is_active:
        problem = "Its owner may not sign in any more: nothing is sent."
    return Claimed(
        delivery=row.pk,
        endpoint=endpoint.pk,
        fence=row.fence + 1,
        attempt=attempt,
        message_id=row.message_id,
        type=row.type,
        kind=EndpointKind(endpoint.kind),
        body=row.body,
        address=address,
        secrets=opened,
        problem=problem,
        failing=bool(endpoint.failures),
        owner=endpoint.owner_id,
    )


def _write(attempt: int, result: Result) -> None:
    DeliveryAttempt.objects.filter(pk=attempt, outcome=Out.BEGUN.value).update(
        outcome=result.outcome.value,
        duration_ms=result.duration_ms,
        address=result.address[:64],
        request_headers=dict(result.request_headers),
        status=result.status,
        response_headers=dict(result.response_headers),
        response_body=result.response_body,
        error=result.error,
    )


def _delivered(endpoint: Endpoint, row: Delivery, now: datetime) -> None:
    Delivery.objects.filter(pk=row.pk).update(
        state=S.DELIVERED.value, finished_at=now, leased_until=None, next_at=now, error=""
    )
    failing_since = endpoint.failing_since
    Endpoint.objects.filter(pk=endpoint.pk).update(succeeded_at=now, failing_since=None, failures=0, held_until=None)
    if failing_since is not None and now - failing_since >= RECOVERED_AFTER:
        waits = Delivery.objects.filter(endpoint=endpoint, state=S.PENDING.value, next_at__gt=now)
        waits.filter(Q(leased_until=None) | Q(leased_until__lte=now)).update(next_at=now)


def _failed(endpoint: Endpoint, row: Delivery, result: Result, now: datetime, chance: float) -> DeliveryState:
    left_s = (row.expires_at - now).total_seconds()
    pause = pause_s(_tries(row), left_s=left_s, chance=chance, asked_s=result.retry_after_s)
    of_an_alert = row.alert_id is not None
    if of_an_alert and result.outcome not in _NOT_OURS:
        endpoint.failures += 1
        endpoint.failing_since = endpoint.failing_since or now
        held = hold_s(result.status, result.retry_after_s)
        endpoint.held_until = now + timedelta(seconds=held) if held else endpoint.held_until
        endpoint.save(update_fields=["failures", "failing_since", "held_until"])
        gone = result.outcome is Out.GONE
        if gone or failed_for_long(endpoint, now):
            why = "It answered 410: it is gone." if gone else f"It failed for 24 hours. The last time: {result.error}"
            give_up_endpoint(endpoint, why, now)
            return S.FAILED
    if result.permanent or result.outcome is Out.GONE or pause is None:
        words = result.error if pause is not None or not of_an_alert else f"Given up after 24 hours. {result.error}"
        Delivery.objects.filter(pk=row.pk).update(state=S.FAILED.value, finished_at=now, leased_until=None, error=words)
        return S.FAILED
    next_at = now + timedelta(seconds=pause)
    Delivery.objects.filter(pk=row.pk).update(leased_until=None, next_at=next_at, error=result.error)
    if of_an_alert:  # what comes after it in its alert waits with it, and is not looked at meanwhile
        Delivery.objects.filter(
            endpoint=endpoint, alert=row.alert_id, state=S.PENDING.value, number__gt=row.number
        ).update(next_at=Greatest(F("next_at"), next_at))
    return S.PENDING


def _tries(row: Delivery) -> int:
    """Since it was queued, or a person sent it again."""
    return DeliveryAttempt.objects.filter(delivery=row, begun_at__gte=row.expires_at - timedelta(hours=24)).count()
