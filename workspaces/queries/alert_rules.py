"""What the rule pages show: each rule in plain words, whether it speaks now, how often it fired, and what it would have
caught."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, QuerySet

from workspaces.domain.alert_defaults import DEFAULTS
from workspaces.domain.alert_rules import OF_THE_SITE
from workspaces.domain.alert_words import KINDS
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, Edge, GroupBy, RuleScope
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.rule_words import ORDER, RuleSays, listed, sentence
from workspaces.domain.watched import PACE_S
from workspaces.models import Alert, AlertChange, AlertRule, AlertSignal, Endpoint, User

from .access import own_endpoints, own_rules, visible_workspaces
from .alert_access import sees_scope
from .alert_matching import happening_of, matcher_of
from .database import database_now

LATELY = timedelta(days=7)
SCANNED = 3_000  # signals that a preview looks at, the newest
SHOWN = 5
_CAME = {default.slug: place for place, default in enumerate(DEFAULTS)}
_RELATED = ("owner", "user", "workspace", "profile", "muted_by")


@dataclass(frozen=True, slots=True)
class RuleRow:
    """`state`: on, off or muted. `fired`: openings in seven days. `open`: alerts of it that are.

    `changed`: it came with agentdesk, and is not as it came.
    """

    rule: AlertRule
    says: str
    state: str
    fired: int
    open: int
    changed: bool


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    key: str
    rows: Sequence[RuleRow]


@dataclass(frozen=True, slots=True)
class Caught:
    """What a rule would have caught, and how many alerts that makes.

    `more`: there were more signals than are looked at. `unseen`: kinds that leave none.
    """

    count: int
    more: bool
    groups: int
    newest: Sequence[AlertSignal]
    unseen: Sequence[AlertKind]

    @property
    def unseen_names(self) -> str:
        return listed([KINDS[kind].name.lower() for kind in self.unseen], "and")


def groups_of(user: User) -> list[Group]:
    """The site's rules (for its staff), the user's own, and (for staff) those of others."""
    rules = list(
        own_rules(user)
        .filter(retired_at=None)
        .select_related(*_RELATED)
        .prefetch_related("endpoints")
        .order_by("name", "pk")
    )
    rules.sort(key=lambda rule: _CAME.get(rule.builtin, len(_CAME)))
    rows = rows_of(user, rules)
    site = [row for row in rows if row.rule.owner_id is None]
    mine = [row for row in rows if row.rule.owner_id == user.pk]
    others = [row for row in rows if row.rule.owner_id not in (None, user.pk)]
    found = [Group("Yours", "own", mine)]
    if user.is_staff:
        found.insert(0, Group("The site’s", "site", site))
    if others:
        found.append(Group("Other people’s", "others", others))
    return found


def rows_of(user: User, rules: Sequence[AlertRule]) -> list[RuleRow]:
    now = database_now()
    ids = [rule.pk for rule in rules]
    opened = (ChangeKind.OPENED.value, ChangeKind.REOPENED.value)
    fired = _counted(
        AlertChange.objects.filter(alert__rule__in=ids, kind__in=opened, at__gte=now - LATELY), "alert__rule"
    )
    still = _counted(Alert.objects.filter(rule__in=ids, state=AlertState.OPEN.value), "rule")
    return [
        RuleRow(
            rule, says(rule, user), state_of(rule, now), fired.get(rule.pk, 0), still.get(rule.pk, 0), differs(rule)
        )
        for rule in rules
    ]


def _counted(found: QuerySet[Any], by: str) -> dict[int, int]:
    return dict(found.order_by().values_list(by).annotate(count=Count("pk")))


def state_of(rule: AlertRule, now: datetime) -> str:
    if not rule.enabled:
        return "off"
    return "muted" if rule.muted_until is not None and rule.muted_until > now else "on"


def differs(rule: AlertRule) -> bool:
    """From the default that it came as."""
    default = next((each for each in DEFAULTS if each.slug == rule.builtin), None)
    if default is None:
        return False
    plain = ("name", "hold_s", "cooldown_s", "remind_s", "tell_resolved", "enabled")
    return (
        any(getattr(rule, name) != getattr(default, name) for name in plain)
        or set(rule.kinds) != set(default.kinds)
        or set(rule.incident_kinds) != set(default.incident_kinds)
        or (rule.min_severity, rule.group_by) != (default.min_severity, default.group_by)
        or (rule.severity or None) != default.severity
        or bool(rule.params)
        or rule.scope != RuleScope.SITE.value
    )


def says(rule: AlertRule, user: User) -> str:
    """The rule in one sentence. Names of endpoints are told to whoever may see them."""
    used = list(rule.endpoints.all())
    if rule.owner_id in (None, user.pk):
        names = [endpoint.name for endpoint in used]
    else:
        names = [f"{len(used)} of their endpoints"] if used else []
    return sentence(
        RuleSays(
            kinds=[AlertKind(kind) for kind in rule.kinds],
            incident_kinds=[IncidentKind(kind) for kind in rule.incident_kinds],
            scope=RuleScope(rule.scope),
            what=_scope_name(rule),
            of_the_site=rule.owner_id is None,
            min_severity=Severity(rule.min_severity),
            severity=Severity(rule.severity) if rule.severity else None,
            params=rule.params,
            hold_s=rule.hold_s,
            cooldown_s=rule.cooldown_s,
            remind_s=rule.remind_s,
            group_by=GroupBy(rule.group_by),
            tell_resolved=rule.tell_resolved,
            endpoints=names,
        )
    )


def _scope_name(rule: AlertRule) -> str:
    found = rule.user or rule.workspace or rule.profile
    if not sees_scope(rule.owner, user=rule.user, workspace=rule.workspace, profile=rule.profile):
        return "(not seen any more)"  # it may be called something else by now
    return found.get_username() if isinstance(found, User) else (found.name if found is not None else "")


def endpoints_for(owner: User | None, actor: User) -> QuerySet[Endpoint]:
    """Those that a rule of this owner may tell, as far as the actor may see them."""
    return own_endpoints(actor).filter(owner=owner).exclude(state="removed").order_by("name", "pk")


def caught(rule: AlertRule) -> Caught:
    """What the rule, saved or not, would have matched in the last seven days, held against it as the digest does.

    Looks at the newest SCANNED signals of its kinds at most. Kinds that are watched rather than signalled leave none.
    Raises ValueError or TypeError where the rule cannot be read.
    """
    matcher = matcher_of(rule)
    found = AlertSignal.objects.filter(
        kind__in=rule.kinds, edge__in=[Edge.BEGAN.value, Edge.HAPPENED.value], at__gte=database_now() - LATELY
    )
    for name in ("user", "workspace", "profile"):
        if (wanted := getattr(rule, f"{name}_id")) is not None:
            found = found.filter(**{name: wanted})
    if rule.owner is not None and not rule.owner.is_staff:
        found = found.filter(Q(workspace=None) | Q(workspace__in=visible_workspaces(rule.owner)))
    signals = list(found.order_by("-at", "-pk")[: SCANNED + 1])
    matched = [
        (signal, happening) for signal in signals[:SCANNED] if matcher.matches(happening := happening_of(signal))
    ]
    return Caught(
        count=len(matched),
        more=len(signals) > SCANNED,
        groups=len({matcher.group_of(happening) for _, happening in matched}),
        newest=[signal for signal, _ in matched[:SHOWN]],
        unseen=[kind for kind in sorted(matcher.kinds, key=ORDER.index) if kind in PACE_S],
    )


def offered_kinds(user: User, chosen: Iterable[str] = ()) -> frozenset[AlertKind]:
    """What the user's own rules can match; what stands in a rule already stays there."""
    kept = {AlertKind(kind) for kind in chosen}
    return frozenset(kind for kind in AlertKind if user.is_staff or kind not in OF_THE_SITE or kind in kept)
