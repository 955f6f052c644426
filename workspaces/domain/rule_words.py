"""What an alert rule does, in one sentence of plain words; and spans of time as people write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from workspaces.domain.alert_rules import OF_THE_SITE
from workspaces.domain.alert_words import GROUPS
from workspaces.domain.alerts import AlertKind, GroupBy, RuleScope
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.watched import THRESHOLDS

K = AlertKind

# the kinds in the order in which they are offered and said
OFFERED: dict[str, tuple[AlertKind, ...]] = {
    "Agents": (
        *(K.INCIDENT, K.ESCALATION_OPENED, K.ESCALATION_OVERDUE),
        *(K.TASK_STUCK, K.TASK_FAILED, K.TASK_FINISHED),
    ),
    "Quota and money": (
        *(K.QUOTA_EXHAUSTED, K.QUOTA_PREDICTED),
        *(K.BUDGET_THRESHOLD, K.BUDGET_EXHAUSTED, K.SPEND_RATE),
    ),
    "The site itself": (K.SANDBOX_UNHEALTHY, K.WORKER_UNHEALTHY, K.QUEUE_UNHEALTHY, K.ENDPOINT_DISABLED),
}
ORDER = tuple(kind for kinds in OFFERED.values() for kind in kinds)

_GROUPS: dict[GroupBy, str] = {
    GroupBy.TROUBLE: "one alert for each",
    GroupBy.RULE: "one alert for all of it",
}

_CLAUSES: dict[AlertKind, str] = {
    K.ESCALATION_OPENED: "a task asks a person something",
    K.ESCALATION_OVERDUE: "a question is not answered by its deadline",
    K.TASK_FAILED: "a task fails",
    K.TASK_FINISHED: "a task finishes",
    K.BUDGET_THRESHOLD: "a budget passes a threshold",
    K.BUDGET_EXHAUSTED: "a budget is used up",
    K.ENDPOINT_DISABLED: "an endpoint is disabled",
}
_PLACELESS = OF_THE_SITE | {K.SANDBOX_UNHEALTHY, K.ENDPOINT_DISABLED}
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_SPAN = re.compile(r"(\d{1,9})\s*(d|days?|h|hours?|min|minutes?|m|s|seconds?|sec)?")


@dataclass(frozen=True, slots=True)
class RuleSays:
    """A rule's settings. `what`: the name of the user, workspace or profile of its scope. `endpoints`: names."""

    kinds: Sequence[AlertKind]
    incident_kinds: Sequence[IncidentKind] = ()
    scope: RuleScope = RuleScope.SITE
    what: str = ""
    of_the_site: bool = True
    min_severity: Severity = Severity.INFO
    severity: Severity | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    hold_s: int = 0
    cooldown_s: int = 600
    remind_s: int = 0
    group_by: GroupBy = GroupBy.TROUBLE
    tell_resolved: bool = True
    endpoints: Sequence[str] = ()


def sentence(rule: RuleSays) -> str:
    """ "When an incident of error or worse opens in any workspace, at once; one alert a pool; …" """
    order = [kind for kind in ORDER if kind in rule.kinds]
    happens = listed([_clause(kind, rule) for kind in order], "or") or "nothing happens"
    if rule.min_severity is not Severity.INFO and order != [K.INCIDENT]:
        happens += f" ({rule.min_severity.value} or worse)"
    if not set(order) <= _PLACELESS or (rule.scope is not RuleScope.SITE and K.SANDBOX_UNHEALTHY in order):
        happens += f" {_where(rule)}"
    parts = [f"When {happens}, {f'once it has held for {span(rule.hold_s)}' if rule.hold_s else 'at once'}"]
    parts.append(_GROUPS.get(rule.group_by) or GROUPS[rule.group_by])
    parts.append(f"not again within {span(rule.cooldown_s)}")
    if rule.remind_s:
        parts.append(f"reminded every {span(rule.remind_s)} while it is open")
    if rule.severity is not None:
        parts.append(f"called {rule.severity.value} whatever it is")
    if not rule.tell_resolved:
        parts.append("not told when it ends")
    parts.append(f"to {listed([*rule.endpoints, 'the bell'], 'and')}" if rule.endpoints else "to the bell alone")
    return f"{'; '.join(parts)}."


def _clause(kind: AlertKind, rule: RuleSays) -> str:
    if kind is K.INCIDENT:
        what = f"an incident ({_which(rule.incident_kinds)})" if rule.incident_kinds else "an incident"
        alone = set(rule.kinds) == {K.INCIDENT} and rule.min_severity is not Severity.INFO
        return f"{what} of {rule.min_severity.value} or worse opens" if alone else f"{what} opens"
    if kind in _CLAUSES:
        return _CLAUSES[kind]
    said = [each.words.format(f"{each.of(rule.params):g}") for each in THRESHOLDS[kind]]
    return " and ".join([said[0], *(_rest(each, said[0]) for each in said[1:])])


def _rest(said: str, before: str) -> str:
    """Without the words with which both begin."""
    words = said.split()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, before.split(), strict=False)))
    return " ".join(words[same:])


def _which(kinds: Sequence[IncidentKind]) -> str:
    others = [kind for kind in IncidentKind if kind not in kinds]
    if len(others) < len(kinds):
        return "any" + (f" but {_named(others, 'and')}" if others else "")
    return _named(kinds, "or")


def _named(kinds: Sequence[IncidentKind], last: str) -> str:
    return listed([kind.value.replace("_", " ") for kind in kinds], last)


def _where(rule: RuleSays) -> str:
    match rule.scope:
        case RuleScope.SITE:
            return "in any workspace" if rule.of_the_site else "in any of your workspaces"
        case RuleScope.USER:
            return f"in what {rule.what} has started"
        case RuleScope.WORKSPACE:
            return f"in the workspace {rule.what}"
        case RuleScope.PROFILE:
            return f"with the profile {rule.what}"


def listed(names: Sequence[str], last: str) -> str:
    """["a", "b", "c"], "or" → "a, b or c"."""
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if len(names) > 1 else "".join(names)


def span(seconds: int) -> str:
    """600 → "10 min", 90 → "90 s", 86400 → "1 d": the largest unit in which it is a whole number."""
    unit, length = next(
        (unit, length) for unit, length in _UNITS if (seconds % length == 0 and seconds >= length) or length == 1
    )
    return f"{seconds // length} {unit}"


def read_span(text: str) -> int:
    """Seconds. "10 min", "2 h", "90"; empty is 0. Raises ValueError."""
    written = text.strip().lower()
    if not written:
        return 0
    found = _SPAN.fullmatch(written)
    if found is None:
        raise ValueError("Write a number and a unit: 90 s, 10 min, 2 h or 1 d.")
    unit = found[2] or "s"
    short = "min" if unit.startswith("m") else unit[0]
    return int(found[1]) * dict(_UNITS)[short]
