"""Which rule matches what, what is one alert, and what it is called."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workspaces.domain.alert_defaults import DEFAULTS
from workspaces.domain.alert_rules import WHAT, Matcher, Names, Sight, title_of, trouble_of
from workspaces.domain.alerts import AlertKind, Edge, GroupBy, Happening, RuleScope
from workspaces.domain.incidents import IncidentKind, Severity

K, G = AlertKind, GroupBy
LOOP = Happening(
    *(K.INCIDENT, Edge.BEGAN, "incident:17", 0.0),
    severity=Severity.ERROR,
    detail="loop",
    cause="loop/shell",
    task=5,
    workspace=2,
    user=3,
    profile=4,
    incident=17,
)
ANY = Matcher(kinds=frozenset(K))
NAMES = Names(
    tasks={5: "Ship it"}, workspaces={2: "acme"}, users={3: "ann"}, profiles={4: "coder"}, pools={9: "openai"}
)


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({}, True),
        ({"kinds": frozenset({K.TASK_FAILED})}, False),
        ({"min_severity": Severity.ERROR}, True),
        ({"min_severity": Severity.CRITICAL}, False),
        ({"incident_kinds": frozenset({IncidentKind.LOOP})}, True),
        ({"incident_kinds": frozenset({IncidentKind.STORM})}, False),
        ({"scope": RuleScope.WORKSPACE, "scope_id": 2}, True),
        ({"scope": RuleScope.WORKSPACE, "scope_id": 3}, False),
        ({"scope": RuleScope.USER, "scope_id": 3}, True),
        ({"scope": RuleScope.USER, "scope_id": 2}, False),
        ({"scope": RuleScope.PROFILE, "scope_id": 4}, True),
        ({"scope": RuleScope.PROFILE, "scope_id": None}, False),
        ({"sight": Sight(1, workspaces=frozenset({2}))}, True),
        ({"sight": Sight(3, workspaces=frozenset({8}))}, False),  # it is booked to the owner, in a place closed to them
    ],
)
def test_a_rule_matches_by_kind_severity_scope_and_what_its_owner_sees(rule: dict[str, Any], matches: bool) -> None:
    assert replace(ANY, **rule).matches(LOOP) is matches
    assert not replace(ANY, **rule).matches(replace(LOOP, edge=Edge.ENDED))


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"kind": K.SPEND_RATE, "user": 1}, True),
        ({"kind": K.SPEND_RATE, "user": 7}, False),
        ({"kind": K.QUOTA_EXHAUSTED, "pool": 9}, True),
        ({"kind": K.QUOTA_EXHAUSTED, "pool": 8}, False),
        ({"kind": K.ENDPOINT_DISABLED, "endpoint": 6, "user": 1}, True),
        ({"kind": K.ENDPOINT_DISABLED, "endpoint": 5}, False),
        ({"kind": K.BUDGET_EXHAUSTED, "budget": 1, "profile": 4}, True),
        ({"kind": K.BUDGET_EXHAUSTED, "budget": 1}, False),
        ({"kind": K.SANDBOX_UNHEALTHY}, False),
        ({"kind": K.WORKER_UNHEALTHY, "user": 1}, False),
    ],
)
def test_of_what_is_in_no_workspace_an_owner_sees_what_is_theirs(fields: dict[str, Any], seen: bool) -> None:
    sight = Sight(1, pools=frozenset({9}), endpoints=frozenset({6}), profiles=frozenset({4}))
    assert sight.sees(Happening(edge=Edge.BEGAN, subject="x", at_s=0.0, **fields)) is seen


def test_troubles_that_belong_together_are_one_group() -> None:
    question = replace(LOOP, kind=K.ESCALATION_OPENED, subject="escalation:3", escalation=3)
    late = replace(question, kind=K.ESCALATION_OVERDUE, subject="overdue:3")
    assert trouble_of(LOOP) == trouble_of(question) == trouble_of(late) == "incident:17"
    assert trouble_of(replace(late, incident=None)) == trouble_of(replace(question, incident=None)) == "escalation:3"
    budgets = [Happening(K.BUDGET_THRESHOLD, Edge.BEGAN, f"{what}:1", 0.0, budget=8) for what in ("threshold", "limit")]
    assert {trouble_of(each) for each in budgets} == {"budget:8"}
    keys = {by: replace(ANY, group_by=by).group_of(LOOP) for by in G}
    assert keys == {
        G.TROUBLE: "incident:17",
        G.TASK: "task:5",
        G.WORKSPACE: "workspace:2",
        G.USER: "user:3",
        G.PROFILE: "profile:4",
        G.POOL: "incident:17",  # of no pool: by itself
        G.CAUSE: "cause:loop/shell",
        G.RULE: "rule:all",
    }


def test_an_alert_is_its_workspaces_when_all_that_it_can_hold_is_there() -> None:
    inside = {by for by in G if replace(ANY, group_by=by).in_one_workspace(LOOP)}
    assert inside == {G.TROUBLE, G.TASK, G.WORKSPACE, G.POOL}
    assert replace(ANY, group_by=G.RULE, scope=RuleScope.WORKSPACE, scope_id=2).in_one_workspace(LOOP)
    assert not replace(ANY, group_by=G.POOL).in_one_workspace(replace(LOOP, pool=9))
    assert not ANY.in_one_workspace(replace(LOOP, workspace=None))


@pytest.mark.parametrize(
    ("by", "fields", "title"),
    [
        (G.TROUBLE, {}, "Loop: task 5 “Ship it” in acme"),
        (G.TASK, {}, "Loop: task 5 “Ship it” in acme"),
        (G.WORKSPACE, {}, "the rule: workspace acme"),
        (G.USER, {}, "the rule: user ann"),
        (G.POOL, {"pool": 9}, "the rule: pool openai"),
        (G.RULE, {}, "the rule"),
        (G.TROUBLE, {"kind": K.SANDBOX_UNHEALTHY, "task": None, "incident": None}, "Sandbox unhealthy: workspace acme"),
    ],
)
def test_a_title_says_what_happened_to_what(by: GroupBy, fields: dict[str, Any], title: str) -> None:
    assert title_of("the rule", replace(ANY, group_by=by), replace(LOOP, **fields), NAMES) == title


def test_each_kind_has_words_and_a_default_rule() -> None:
    assert set(WHAT) == set(K)
    assert {kind for rule in DEFAULTS for kind in rule.kinds} == set(K)
    assert len({rule.slug for rule in DEFAULTS}) == len(DEFAULTS)
