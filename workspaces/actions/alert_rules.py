"""Alert rules are made, changed, muted, switched and retired by people: checked, with an entry in the audit log.

What a rule's alerts do then: a changed pace (hold, cooldown, reminders, mute) holds for open alerts at once. What a
changed rule does not match any more leaves its alerts, and what belongs to another group moves there. Switched off or
retired, all of its alerts end, with who did it and why; switched on, it sees what begins from then on. Who may:
queries/alert_access.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields as fields_of
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from workspaces import dispatch
from workspaces.domain.alert_defaults import DEFAULTS, DefaultRule
from workspaces.domain.alert_rules import OF_THE_SITE
from workspaces.domain.alerts import AlertKind, GroupBy, RuleScope
from workspaces.domain.endpoints import EndpointState
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.text import clean_json
from workspaces.domain.watched import THRESHOLDS
from workspaces.models import AgentProfile, AlertRule, AuditEntry, Endpoint, User, Workspace
from workspaces.queries.alert_access import may_change_rule, may_make_rule, sees_scope

from .alert_book import alert_lock
from .alert_regroup import end_all, regroup, retime
from .clock import database_now
from .errors import Refused
from .words import taken

NAME_CHARS = 120
MOST_HOLD_S = 86_400
LEAST_COOLDOWN_S, MOST_COOLDOWN_S = 10, 7 * 86_400
LEAST_REMIND_S, MOST_REMIND_S = 60, 30 * 86_400
MOST_MUTE = timedelta(days=90)
MOST_ENDPOINTS = 20
MOST_OF_ONE_OWNER = 100  # besides those that come with agentdesk: each is held against whatever happens

_MATCHING = ("scope", "user", "workspace", "profile", "kinds", "incident_kinds", "min_severity", "group_by")
_SAID = (*_MATCHING, "name", "severity", "params", "hold_s", "cooldown_s", "remind_s", "tell_resolved")


def make_rule(
    *, owner: User | None, actor: User, reason: str = "", endpoints: Iterable[Endpoint] = (), **settings: Any
) -> AlertRule:
    """A rule that holds from now on. `owner` None: the site's. `settings`: fields of AlertRule. Raises Refused."""
    reason = taken(reason, "reason")
    if not may_make_rule(actor, owner):
        raise Refused("Only site staff make rules for the site or for somebody else.")
    rule = AlertRule(owner=owner, created_by=actor)
    _set(rule, settings)
    _check(rule)
    told = _endpoints(rule, endpoints)
    with transaction.atomic():
        alert_lock()
        if AlertRule.objects.filter(owner=owner, builtin="", retired_at=None).count() >= MOST_OF_ONE_OWNER:
            raise Refused(f"There are {MOST_OF_ONE_OWNER} rules already. Remove one that nobody needs.")
        rule.created_at = rule.changed_at = database_now()
        rule.save()
        rule.endpoints.set(told)
        _audit("alert_rule.make", rule, actor, reason, rule.changed_at, new=_as_said(rule))
    return rule


def change_rule(
    rule_id: int, *, actor: User, reason: str, endpoints: Iterable[Endpoint] | None = None, **settings: Any
) -> AlertRule:
    """`endpoints` None: as they are. Raises Refused."""
    reason = _why(reason, "change this rule")
    with _taken_up(rule_id, actor) as (rule, now):
        old = _as_said(rule)
        was = [getattr(rule, _column(name)) for name in _MATCHING]
        _set(rule, settings)
        _check(rule)
        if endpoints is not None:
            rule.endpoints.set(_endpoints(rule, endpoints))
        new = _as_said(rule)
        if new == old:
            raise Refused("That is what the rule says already: nothing was changed.")
        rule.changed_at = now
        rule.save()
        _audit("alert_rule.change", rule, actor, reason, now, old=old, new=new)
        if was != [getattr(rule, _column(name)) for name in _MATCHING]:
            regroup(rule, now, f"{actor} has changed the rule: {reason}")
        retime(rule, now)
    return rule


def mute_rule(rule_id: int, *, until: datetime, actor: User, reason: str) -> AlertRule:
    """Nobody is told until then; alerts go on. What is open then is told. Raises Refused."""
    reason = _why(reason, "mute this rule")
    with _taken_up(rule_id, actor) as (rule, now):
        if until <= now:
            raise Refused("Mute it until a time that is still to come.")
        if until > now + MOST_MUTE:
            raise Refused(f"At most {MOST_MUTE.days} days: to hear nothing at all, switch the rule off.")
        rule.muted_until, rule.muted_by, rule.muted_reason = until, actor, reason
        rule.save(update_fields=["muted_until", "muted_by", "muted_reason"])
        _audit("alert_rule.mute", rule, actor, reason, now, until=until.isoformat())
        retime(rule, now)
    return rule


def unmute_rule(rule_id: int, *, actor: User, reason: str = "") -> AlertRule:
    """What is open is told now. Raises Refused."""
    reason = taken(reason, "reason")
    with _taken_up(rule_id, actor) as (rule, now):
        if rule.muted_until is None or rule.muted_until <= now:
            raise Refused("This rule is not muted.")
        rule.muted_until, rule.muted_by, rule.muted_reason = None, None, ""
        rule.save(update_fields=["muted_until", "muted_by", "muted_reason"])
        _audit("alert_rule.unmute", rule, actor, reason, now)
        retime(rule, now)
    return rule


def switch_rule(rule_id: int, *, on: bool, actor: User, reason: str = "") -> AlertRule:
    """On: it sees what begins from now on. Off: all of its alerts end, and it sees nothing. Raises Refused."""
    reason = taken(reason, "reason") if on else _why(reason, "switch this rule off")
    with _taken_up(rule_id, actor) as (rule, now):
        if rule.enabled == on:
            raise Refused(f"This rule is {'on' if on else 'off'} already.")
        rule.enabled = on
        rule.changed_at = now
        rule.save(update_fields=["enabled", "changed_at"])
        _audit("alert_rule.on" if on else "alert_rule.off", rule, actor, reason, now)
        if not on:
            end_all(rule, now, f"{actor} has switched the rule off: {reason}")
    return rule


def retire_rule(rule_id: int, *, actor: User, reason: str) -> AlertRule:
    """It is gone for good; its alerts end and stay readable. A default rule is switched off instead. Raises Refused."""
    reason = _why(reason, "remove this rule")
    with _taken_up(rule_id, actor) as (rule, now):
        if rule.builtin:
            raise Refused("This rule comes with agentdesk and cannot be removed: switch it off.")
        rule.enabled = False
        rule.retired_at = rule.changed_at = now
        rule.save(update_fields=["enabled", "retired_at", "changed_at"])
        _audit("alert_rule.retire", rule, actor, reason, now, old=_as_said(rule))
        end_all(rule, now, f"{actor} has removed the rule: {reason}")
    return rule


def restore_default(rule_id: int, *, actor: User, reason: str) -> AlertRule:
    """A rule that comes with agentdesk is as it came; whom it tells stays. Raises Refused."""
    reason = _why(reason, "put this rule back")
    with _taken_up(rule_id, actor) as (rule, now):
        default = next((each for each in DEFAULTS if each.slug == rule.builtin), None)
        if default is None:
            raise Refused("This rule did not come with agentdesk: there is nothing to put back.")
        old, was_on = _as_said(rule), rule.enabled
        as_it_came = _from_default(default)
        for name, value in as_it_came.items():
            setattr(rule, name, value)
        rule.user = rule.workspace = rule.profile = None
        new = _as_said(rule)
        if (new, rule.enabled) == (old, was_on):
            raise Refused("This rule is as it came already.")
        rule.changed_at = now
        rule.save()
        _audit("alert_rule.restore", rule, actor, reason, now, old=old, new=new)
        if was_on and not rule.enabled:
            end_all(rule, now, f"{actor} has put the rule back, and it comes switched off: {reason}")
        else:
            regroup(rule, now, f"{actor} has put the rule back: {reason}")
            retime(rule, now)
    return rule


def install_defaults() -> int:
    """Put in the default rules that are not there yet; returns how many. What people changed stays as it is."""
    known = set(AlertRule.objects.exclude(builtin="").values_list("builtin", flat=True))
    missing = [default for default in DEFAULTS if default.slug not in known]
    if missing:
        rows = [AlertRule(builtin=default.slug, **_from_default(default)) for default in missing]
        AlertRule.objects.bulk_create(rows, ignore_conflicts=True)  # another process may do the same
    return len(missing)


def _from_default(default: DefaultRule) -> dict[str, Any]:
    plain = {field.name: getattr(default, field.name) for field in fields_of(default) if field.name != "slug"}
    return plain | {
        "scope": RuleScope.SITE.value,
        "kinds": [kind.value for kind in default.kinds],
        "incident_kinds": [kind.value for kind in default.incident_kinds],
        "min_severity": default.min_severity.value,
        "severity": default.severity.value if default.severity else "",
        "group_by": default.group_by.value,
        "params": {},
    }


@contextmanager
def _taken_up(rule_id: int, actor: User) -> Iterator[tuple[AlertRule, datetime]]:
    """One transaction, in which nothing else moves the rule's alerts."""
    with transaction.atomic():
        alert_lock()
        related = ("owner", "user", "workspace", "profile")
        rule = AlertRule.objects.select_for_update(no_key=True, of=("self",)).select_related(*related).get(pk=rule_id)
        if not may_change_rule(actor, rule):
            raise Refused("Only its owner, or site staff, may change this rule.")
        if rule.retired_at is not None:
            raise Refused(f"This rule was removed at {rule.retired_at:%Y-%m-%d %H:%M} UTC: make a new one.")
        yield rule, database_now()
        dispatch.alerts()


# ---- checks


def _set(rule: AlertRule, settings: Mapping[str, Any]) -> None:
    """Raises TypeError for what is no setting of a rule: a mistake of the caller's, not of a person's."""
    if unknown := set(settings) - set(_SAID):
        raise TypeError(f"no setting of a rule: {', '.join(sorted(unknown))}")
    for name, value in settings.items():
        if name in ("kinds", "incident_kinds"):
            value = list(dict.fromkeys(str(getattr(each, "value", each)) for each in value))
        setattr(rule, name, getattr(value, "value", value))


def _check(rule: AlertRule) -> None:
    """Raises Refused, with what to do."""
    rule.name = " ".join(taken(rule.name, "name", NAME_CHARS).split())
    if not rule.name:
        raise Refused("Give the rule a name: its alerts are told by it.")
    kinds = _known(rule.kinds, AlertKind, "kind of alert")
    _known(rule.incident_kinds, IncidentKind, "kind of incident")
    _known([rule.scope], RuleScope, "scope")
    _known([rule.group_by], GroupBy, "group")
    _known([rule.min_severity, *([rule.severity] if rule.severity else [])], Severity, "severity")
    if not kinds:
        raise Refused("Choose at least one thing to alert on.")
    given = {name: row for name in ("user", "workspace", "profile") if (row := getattr(rule, name)) is not None}
    if set(given) != {rule.scope} - {RuleScope.SITE.value}:
        raise Refused("The whole site is one." if rule.scope == "site" else f"Say which {rule.scope} the rule is for.")
    _check_sight(rule, kinds)
    _check_pace(rule)
    rule.params = _params(rule.params, kinds)


def _check_sight(rule: AlertRule, kinds: Sequence[AlertKind]) -> None:
    user: User | None = rule.user
    workspace: Workspace | None = rule.workspace
    profile: AgentProfile | None = rule.profile
    if not sees_scope(rule.owner, user=user, workspace=workspace, profile=profile):
        raise Refused(f"{rule.owner} does not see this {rule.scope}: choose one that is theirs.")
    hidden = [kind.value.replace("_", " ") for kind in kinds if kind in OF_THE_SITE]
    if hidden and rule.owner is not None and not rule.owner.is_staff:
        raise Refused(f"What concerns the site itself is for its staff: leave out {' and '.join(hidden)}.")


def _check_pace(rule: AlertRule) -> None:
    if not 0 <= rule.hold_s <= MOST_HOLD_S:
        raise Refused("It can have to hold for up to one day.")
    if not LEAST_COOLDOWN_S <= rule.cooldown_s <= MOST_COOLDOWN_S:
        raise Refused("The pause between two messages is between 10 seconds and 7 days: 10 minutes are usual.")
    if rule.remind_s and not LEAST_REMIND_S <= rule.remind_s <= MOST_REMIND_S:
        raise Refused("Remind every minute at most and every 30 days at least, or not at all.")


def _known(values: Iterable[str], of: Any, what: str) -> list[Any]:
    try:
        return [of(value) for value in values]
    except ValueError:
        raise Refused(f"There is no such {what}: {', '.join(str(value) for value in values)[:80]}.") from None


def _params(params: Any, kinds: Sequence[AlertKind]) -> dict[str, float]:
    """Those of its kinds; the others have no meaning."""
    if not isinstance(params, dict):
        raise Refused("Thresholds are numbers by name.")
    kept: dict[str, float] = {}
    for threshold in [each for kind in kinds for each in THRESHOLDS.get(kind, ())]:
        value = params.get(threshold.name)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not threshold.least <= value <= threshold.most
        ):
            low, high = f"{threshold.least:g}", f"{threshold.most:g}"
            raise Refused(f"{threshold.label}: a number from {low} to {high} ({threshold.unit}).")
        kept[threshold.name] = value
    return kept


def _endpoints(rule: AlertRule, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    chosen = list({endpoint.pk: endpoint for endpoint in endpoints}.values())
    if len(chosen) > MOST_ENDPOINTS:
        raise Refused(f"{MOST_ENDPOINTS} endpoints are enough for one rule: leave some out.")
    for endpoint in chosen:
        if endpoint.owner_id != rule.owner_id:
            whose = "the site’s own endpoints" if rule.owner_id is None else "its owner’s endpoints"
            raise Refused(f"This rule tells {whose} alone: leave out {endpoint.name}.")
        if endpoint.state == EndpointState.REMOVED.value:
            raise Refused(f"{endpoint.name} was removed: leave it out.")
    return chosen


def _why(reason: str, to_what: str) -> str:
    reason = taken(reason, "reason")
    if not reason:
        raise Refused(f"Say why you {to_what}: the reason is kept in the audit log.")
    return reason


def _column(name: str) -> str:
    return f"{name}_id" if name in ("user", "workspace", "profile") else name


def _as_said(rule: AlertRule) -> dict[str, Any]:
    said = {name: getattr(rule, _column(name)) for name in _SAID}
    endpoints = sorted(rule.endpoints.values_list("pk", flat=True)) if rule.pk else []
    return clean_json({**said, "endpoints": endpoints})


def _audit(action: str, rule: AlertRule, actor: User, reason: str, now: datetime, **said: Any) -> None:
    AuditEntry.objects.create(
        actor=actor,
        action=action,
        workspace_id=rule.workspace_id,
        reason=reason,
        data=clean_json({"rule": rule.pk, "name": rule.name, "owner": rule.owner_id, **said}),
        at=now,
    )
