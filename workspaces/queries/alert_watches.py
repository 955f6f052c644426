"""What the watch reads: one or two statements a condition, however many rules there are. Writes nothing.

Of tasks the index by status finds those that are not over, so that what a site has finished costs nothing. What every
event changes has no index of its own, on purpose: it would make each step dearer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db import connection
from django.db.models import Q

from workspaces.domain.alert_watches import Whom
from workspaces.domain.alerts import AlertKind
from workspaces.domain.incidents import Severity
from workspaces.domain.quotas import DAY_S, WINDOW_S, Limits, PoolState
from workspaces.domain.states import Circuit, TaskStatus
from workspaces.domain.watch_quota import PoolDay, PressedPool
from workspaces.domain.watch_site import FailingNode, Process, Queue
from workspaces.domain.watch_work import HOUR_S, QuietTask, Spent
from workspaces.models import AlertMember, AlertRule, AlertWatch, Node, QuotaMinute, QuotaPool, User

from .heartbeats import seen_lately

USUAL_DAYS = 14
RATE_MINUTES = 30


# --- rules


def watching_rules(kinds: Collection[AlertKind]) -> dict[AlertKind, list[AlertRule]]:
    """Those that are in force, by kind."""
    named = Q()
    for kind in kinds:
        named |= Q(kinds__contains=[kind.value])
    found: dict[AlertKind, list[AlertRule]] = {}
    rules = AlertRule.objects.filter(named, enabled=True, retired_at=None).select_related("owner").order_by("pk")
    for rule in rules if kinds else ():
        for kind in kinds:
            if kind.value in rule.kinds:
                found.setdefault(kind, []).append(rule)
    return found


def active_members(kind: AlertKind) -> dict[int, dict[str, Severity]]:
    """Subject and severity of what goes on, by the rule's id. Also what a person has called resolved: it is not to come
    back before it is over. Of any rule: one that watches no longer has what it said to be taken back."""
    found: dict[int, dict[str, Severity]] = defaultdict(dict)
    members = AlertMember.objects.filter(kind=kind.value, ended_at=None).order_by("pk")
    for rule, subject, severity in members.values_list("alert__rule", "subject", "severity"):
        found[rule][subject] = Severity(severity)
    return dict(found)


# --- people's work

_QUIET = """
SELECT task.id, task.title, task.status, task.waiting_for,
       extract(epoch FROM greatest(task.last_event_at, task.status_since))::float,
       extract(epoch FROM task.waiting_until)::float,
       task.workspace_id, workspace.owner_id, version.profile_id
  FROM workspaces_task AS task
  JOIN workspaces_workspace AS workspace ON workspace.id = task.workspace_id
  JOIN workspaces_profileversion AS version ON version.id = task.profile_version_id
 WHERE task.status IN ('queued', 'running', 'pausing', 'waiting')
   AND CASE WHEN task.status = 'waiting'
            THEN task.waiting_for <> 'operator' AND task.waiting_until < %(before)s::timestamptz
            ELSE greatest(task.last_event_at, task.status_since) < %(before)s::timestamptz END
 ORDER BY task.id
"""


def quiet_tasks(before: datetime) -> list[QuietTask]:
    """Tasks that should go on and have had no event since, or should have been looked at again before."""
    with connection.cursor() as cursor:
        cursor.execute(_QUIET, {"before": before})
        return [
            QuietTask(pk, title, TaskStatus(status), waiting_for, last_s, until_s, Whom(*whom))
            for pk, title, status, waiting_for, last_s, until_s, *whom in cursor.fetchall()
        ]


_LAST_TWO_HOURS = """
SELECT user_id, sum(cost_usd)::float
  FROM workspaces_usagerollup
 WHERE hour >= %(since)s::timestamptz
 GROUP BY user_id HAVING sum(cost_usd) >= %(least)s::numeric
"""
_HOURS = """
SELECT user_id, extract(epoch FROM hour)::bigint, workspace_id, profile_id, sum(cost_usd)::float
  FROM workspaces_usagerollup
 WHERE hour >= %(since)s::timestamptz AND hour < %(until)s::timestamptz AND user_id = ANY(%(users)s::bigint[])
   AND purpose <> 'storage' AND cost_usd > 0
 GROUP BY 1, 2, 3, 4
"""


def spenders(least_usd: float, now: datetime) -> set[int]:
    """Users who may have spent that much: in this hour of the clock and the one before, with storage."""
    since = _hour(now.timestamp() - HOUR_S)
    with connection.cursor() as cursor:
        cursor.execute(_LAST_TWO_HOURS, {"since": since, "least": least_usd})
        return {user for user, _ in cursor.fetchall()}


def hours_of(users: Collection[int], now: datetime) -> dict[int, list[Spent]]:
    """The last 14 days of each, by the hour and the place; storage, which goes on by itself, is left out. What is over
    by two hours is read once an hour."""
    this = int(now.timestamp() // HOUR_S) * HOUR_S
    since, lately = this - USUAL_DAYS * DAY_S, this - HOUR_S
    if _past.at != lately:
        _past.at, _past.of_user = lately, {}
    unread = set(users) - _past.of_user.keys()
    for user, spent in _spent(unread, since, lately).items():
        _past.of_user[user] = spent
    newest = _spent(set(users), lately, this + HOUR_S)
    return {user: [*_past.of_user[user], *newest[user]] for user in users}


@dataclass(slots=True)
class _Past:
    at: int = 0
    of_user: dict[int, list[Spent]] = field(default_factory=dict)


_past = _Past()


def _spent(users: Collection[int], since_s: float, until_s: float) -> dict[int, list[Spent]]:
    found: dict[int, list[Spent]] = {user: [] for user in users}
    if users:
        with connection.cursor() as cursor:
            cursor.execute(_HOURS, {"users": list(users), "since": _hour(since_s), "until": _hour(until_s)})
            for user, hour, workspace, profile, usd in cursor.fetchall():
                found[user].append(Spent(hour, usd, Whom(workspace, user, profile)))
    return found


def names_of(users: Collection[int]) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=users).values_list("pk", "username"))


def _hour(at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s // HOUR_S) * HOUR_S, UTC)


# --- quota

_PRESSED = """
SELECT pool.id, pool.name, coalesce(queue.waiting, 0), extract(epoch FROM queue.oldest)::float, pool.circuit,
       extract(epoch FROM pool.blocked_until)::float, pool.blocked_reason
  FROM workspaces_quotapool AS pool
  LEFT JOIN (SELECT pool_id, count(*) AS waiting, min(queued_at) AS oldest
               FROM workspaces_quotaclaim
              WHERE state = 'waiting' AND (not_before IS NULL OR not_before <= statement_timestamp())
              GROUP BY pool_id) AS queue ON queue.pool_id = pool.id
 WHERE pool.retired_at IS NULL
   AND (queue.waiting > 0 OR pool.circuit <> 'closed' OR pool.blocked_until > statement_timestamp())
 ORDER BY pool.id
"""
_WHOM = """
SELECT DISTINCT claim.pool_id, task.workspace_id, workspace.owner_id, version.profile_id
  FROM workspaces_task AS task
  JOIN workspaces_quotaclaim AS claim ON claim.task_id = task.id
  JOIN workspaces_workspace AS workspace ON workspace.id = task.workspace_id
  JOIN workspaces_profileversion AS version ON version.id = task.profile_version_id
 WHERE task.status IN ('queued', 'running', 'pausing', 'waiting') AND claim.pool_id = ANY(%s::bigint[])
"""


def pressed_pools(*, name_whom: bool) -> list[PressedPool]:
    """Pools in whose queue calls wait, that hold back, or whose circuit is open. `name_whom`: with whose work."""
    with connection.cursor() as cursor:
        cursor.execute(_PRESSED)
        rows = cursor.fetchall()
    whom = _whom([row[0] for row in rows]) if name_whom else {}
    return [
        PressedPool(pk, name, waiting, oldest, circuit != Circuit.CLOSED.value, held, reason, whom.get(pk, frozenset()))
        for pk, name, waiting, oldest, circuit, held, reason in rows
    ]


def pool_days(now: datetime, *, name_whom: bool) -> list[PoolDay]:
    """Of pools with a limit for the day. One that has used nothing lately is left out."""
    now_s = now.timestamp()
    pools = {}
    limited = Q(limits__has_key="tokens_per_day") | Q(learned__has_key="tokens_per_day")
    for pool in QuotaPool.objects.filter(limited, retired_at=None).only("name", "limits", "learned", "state"):
        limit = Limits.binding(pool.limits, pool.learned).tokens_per_day
        if limit is not None:
            pools[pool.pk] = (pool.name, limit, pool.state)
    this = int(now_s // WINDOW_S) * WINDOW_S
    first = max(this - RATE_MINUTES * WINDOW_S, int(now_s // DAY_S) * DAY_S)
    minutes: dict[int, dict[int, int]] = defaultdict(dict)
    rows = QuotaMinute.objects.filter(
        pool__in=list(pools),
        minute__gte=datetime.fromtimestamp(first, UTC),
        minute__lt=datetime.fromtimestamp(this, UTC),
    )
    for pool_id, minute, into, out in rows.values_list("pool", "minute", "input_tokens", "output_tokens"):
        minutes[pool_id][int(minute.timestamp())] = into + out
    whom = _whom(list(minutes)) if name_whom and minutes else {}
    found = []
    for pk, of_pool in sorted(minutes.items()):
        name, limit, data = pools[pk]
        state = PoolState.from_json(data)
        state.forget(now_s)
        by_minute = [of_pool.get(at, 0) for at in range(this - WINDOW_S, first - 1, -WINDOW_S)]
        used = state.day_tokens + state.held_output
        found.append(PoolDay(pk, name, limit, used, by_minute, whom.get(pk, frozenset())))
    return found


def _whom(pools: list[int]) -> dict[int, frozenset[Whom]]:
    """Whose tasks that are not over draw on each."""
    found: dict[int, set[Whom]] = defaultdict(set)
    if pools:
        with connection.cursor() as cursor:
            cursor.execute(_WHOM, [pools])
            for pool, *whom in cursor.fetchall():
                found[pool].add(Whom(*whom))
    return {pool: frozenset(theirs) for pool, theirs in found.items()}


# --- the site

_QUEUE = """
SELECT due.count, extract(epoch FROM due.oldest)::float, signals.count, extract(epoch FROM signals.oldest)::float
  FROM (SELECT count(*), min(greatest(status_since, last_event_at, lease_until)) AS oldest
          FROM workspaces_task
         WHERE status IN ('queued', 'running', 'pausing')
           AND (lease_until IS NULL OR lease_until < statement_timestamp())) AS due,
       (SELECT count(*), min(at) AS oldest FROM workspaces_alertsignal WHERE digested_at IS NULL) AS signals
"""


def queue(*, broker_answers: bool) -> Queue:
    with connection.cursor() as cursor:
        cursor.execute(_QUEUE)
        due, due_s, signals, signal_s = cursor.fetchone()
    failing = AlertWatch.objects.exclude(failing_since=None).order_by("kind").values_list("kind", "failing_since")
    unread = [(kind, since.timestamp()) for kind, since in failing if since is not None]
    return Queue(due, due_s, signals, signal_s, broker_answers, unread)


def processes() -> list[Process]:
    return [
        Process(each.role, each.host, each.name, each.started_at.timestamp(), each.seen_at.timestamp(), each.ending)
        for each in seen_lately()
    ]


def failing_nodes() -> list[FailingNode]:
    rows = Node.objects.exclude(failing_since=None).order_by("name")
    return [
        FailingNode(name, since.timestamp(), looked.timestamp(), error)
        for name, since, looked, error in rows.values_list("name", "failing_since", "looked_at", "error")
        if since is not None
    ]
