"""Policies: the first rule that matches decides, and what a rule cannot be sure of is never let through."""

from __future__ import annotations

from typing import Any

import pytest

from workspaces.domain.effects import Effect
from workspaces.domain.policy import Approver, OnExpiry, PolicyError, name_result, read_policy, rule_on
from workspaces.domain.results import ResultClass as R
from workspaces.domain.states import Verdict

LONG = "x" * 20_001


def verdict_of(
    rules: list[dict[str, Any]], arguments: dict[str, Any], *, tool: str = "pay", effect: Effect = Effect.EXTERNAL
) -> Verdict:
    return rule_on(read_policy(rules), tool, arguments, effect).verdict


def matches(match: dict[str, Any], arguments: dict[str, Any], verdict: str = "hold") -> bool:
    """Whether a rule with that test decides."""
    rules = [{"tool": "pay", "arguments": [match], "verdict": verdict}]
    return rule_on(read_policy(rules), "pay", arguments, Effect.EXTERNAL).rule is not None


def test_the_first_rule_that_matches_decides() -> None:
    rules = [
        {"name": "small", "tool": "pay", "arguments": [{"path": "$.amount", "max": 10}], "verdict": "allow"},
        {"name": "large", "tool": "pay*", "arguments": [{"path": "$.amount", "min": 1000}],
         "verdict": "hold", "approver": "two_persons", "expires_s": 600, "on_expiry": "escalate"},
        {"tool": "pay", "verdict": "correct", "words": "Pay by invoice."},
    ]  # fmt: skip
    policy = read_policy(rules)
    small = rule_on(policy, "pay", {"amount": 5}, Effect.IRREVERSIBLE)
    assert (small.verdict, small.rule and small.rule.scope.title) == (Verdict.ALLOW, "rule 1 (small)")
    large = rule_on(policy, "payout", {"amount": 5000}, Effect.EXTERNAL)
    assert (large.verdict, large.approver, large.on_expiry) == (Verdict.HOLD, Approver.TWO_PERSONS, OnExpiry.ESCALATE)
    assert large.expires_s(86_400) == 600
    other = rule_on(policy, "pay", {"amount": 50}, Effect.EXTERNAL)
    assert (other.verdict, other.rule and other.rule.scope.title) == (Verdict.CORRECT, "rule 3")


def test_what_no_rule_matches_is_judged_as_without_a_policy() -> None:
    for rules in ([], [{"tool": "other", "verdict": "correct", "words": "no"}]):
        assert verdict_of(rules, {}, effect=Effect.IRREVERSIBLE) is Verdict.HOLD
        assert verdict_of(rules, {}, effect=Effect.EXTERNAL) is Verdict.ALLOW
        assert rule_on(read_policy(rules), "pay", {}, Effect.IRREVERSIBLE).approver is Approver.ANY_OPERATOR


@pytest.mark.parametrize(
    ("scope", "let_through"),
    [
        ({}, False),
        ({"tool": "*"}, False),
        ({"effect": "external"}, False),
        ({"tool": "p*"}, True),
        ({"effect": ["external", "irreversible"]}, True),
    ],
)
def test_an_irreversible_call_is_allowed_only_by_its_tool_or_effect(scope: dict[str, Any], let_through: bool) -> None:
    found = verdict_of([scope | {"verdict": "allow"}], {}, effect=Effect.IRREVERSIBLE)
    assert found is (Verdict.ALLOW if let_through else Verdict.HOLD)


@pytest.mark.parametrize(
    ("match", "arguments", "expected"),
    [
        ({"path": "$.a", "glob": "x*z"}, {"a": "xyz"}, True),
        ({"path": "$.a", "glob": "x*"}, {"a": "axe"}, False),
        ({"path": "$.a", "regex": "b+c"}, {"a": "abbbcd"}, True),
        ({"path": "$.a", "regex": "^b"}, {"a": "ab"}, False),
        ({"path": "$.a", "glob": "5"}, {"a": 5}, True),
        ({"path": "$.a", "min": 100}, {"a": 100}, True),
        ({"path": "$.a", "min": 100}, {"a": 99.99}, False),
        ({"path": "$.a", "min": 1, "max": 3}, {"a": 4}, False),
        ({"path": "$.a", "min": 100}, {"a": "250"}, True),
        ({"path": "$.a", "min": 100}, {"a": "1e3"}, True),
        ({"path": "$.a", "equals": 1}, {"a": 1.0}, True),
        ({"path": "$.a", "equals": 1}, {"a": True}, False),
        ({"path": "$.a", "equals": {"x": [1]}}, {"a": {"x": [1]}}, True),
        ({"path": "$.a", "equals": None}, {"a": None}, True),
        ({"path": "$.a", "exists": True}, {"a": None}, True),
        ({"path": "$.a", "exists": False}, {}, True),
        ({"path": "$.a", "exists": False}, {"a": 1}, False),
        ({"path": "$.a", "empty": True}, {"a": " "}, True),
        ({"path": "$.a", "empty": True}, {"a": 0}, False),
        ({"path": "$.a", "equals": 1}, {}, False),
        ({"path": "$.items[1].url", "glob": "http*"}, {"items": [{}, {"url": "http://x"}]}, True),
        ({"path": "$.items[1].url", "glob": "http*"}, {"items": [{"url": "http://x"}]}, False),
        ({"path": '$.headers["X-Key"]', "exists": True}, {"headers": {"X-Key": "1"}}, True),
        ({"path": "$.to[*]", "glob": "*@evil.com"}, {"to": ["a@ok.com", "b@evil.com"]}, True),
        ({"path": "$", "regex": "evil"}, {"deep": {"er": "evil"}}, True),
        ({"path": "$.a.b", "equals": 1}, {"a": 5}, False),
    ],
)
def test_a_test_of_an_argument(match: dict[str, Any], arguments: dict[str, Any], expected: bool) -> None:
    assert matches(match, arguments) is expected


@pytest.mark.parametrize(
    ("match", "arguments"),
    [
        ({"path": "$.a", "min": 100}, {"a": "a lot"}),
        ({"path": "$.a", "max": 100}, {"a": [5]}),
        ({"path": "$.a", "max": 100}, {"a": "NaN"}),
        ({"path": "$.a", "regex": "evil"}, {"a": LONG}),
        ({"path": "$.a", "glob": "x"}, {"a": LONG}),
        ({"path": "$.a[*]", "equals": 1}, {"a": [0] * 1_001}),
    ],
)
def test_what_cannot_be_looked_at_is_held_and_never_let_through(
    match: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert matches(match, arguments, "hold")
    assert not matches(match, arguments, "allow")


def test_a_rule_that_allows_wants_every_value_under_a_star() -> None:
    match = {"path": "$.to[*]", "glob": "*@ours.com"}
    assert matches(match, {"to": ["a@ours.com", "b@ours.com"]}, "allow")
    assert not matches(match, {"to": ["a@ours.com", "b@evil.com"]}, "allow")
    assert not matches(match, {"to": []}, "allow")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("x", "rule 2: must be an object"),
        ({}, "rule 2, verdict: must be one of allow, hold, correct, not null"),
        ({"verdict": "maybe"}, "rule 2, verdict: must be one of"),
        ({"verdict": "correct"}, "rule 2, words: are missing"),
        ({"verdict": "allow", "approver": "owner"}, "rule 2, approver: only says something about held calls"),
        ({"verdict": "hold", "approver": "boss"}, "rule 2, approver: must be one of any_operator, owner, two_persons"),
        ({"verdict": "hold", "expires_s": 5}, "rule 2, expires_s: must be whole seconds, 60 to"),
        ({"verdict": "hold", "expires_s": True}, "rule 2, expires_s"),
        ({"verdict": "hold", "on_expiry": None}, "rule 2, on_expiry"),
        ({"verdict": "hold", "effect": "bad"}, "rule 2, effect"),
        ({"verdict": "hold", "effect": []}, "rule 2, effect: names none"),
        ({"verdict": "hold", "tool": ""}, "rule 2, tool"),
        ({"verdict": "hold", "tol": "x"}, "rule 2, tol: is not a field of a rule about calls"),
        ({"verdict": "hold", "arguments": {}}, "rule 2, arguments: must be a list"),
        ({"verdict": "hold", "arguments": [{"path": "a", "min": 1}]}, r"rule 2, arguments\[0\].path: must begin with"),
        ({"verdict": "hold", "arguments": [{"path": "$.a b", "min": 1}]}, r"arguments\[0\].path: cannot be read"),
        ({"verdict": "hold", "arguments": [{"min": 1}]}, r"arguments\[0\].path: is missing"),
        ({"verdict": "hold", "arguments": [{"path": "$.a"}]}, r"arguments\[0\]: has no test"),
        ({"verdict": "hold", "arguments": [{"path": "$.a", "min": "1"}]}, r"arguments\[0\].min: must be a number"),
        ({"verdict": "hold", "arguments": [{"path": "$.a", "min": 2, "max": 1}]}, r"\[0\].max: is less than min"),
        ({"verdict": "hold", "arguments": [{"path": "$.a", "regex": "("}]}, r"\[0\].regex: not a regular"),
        ({"verdict": "hold", "arguments": [{"path": "$.a", "exists": "y"}]}, r"\[0\].exists: must be true"),
        ({"class": "empty"}, "rule 2, result: must be an object"),
        ({"class": "ok", "result": {"regex": "a"}}, "rule 2, class: must be one of empty, ambiguous, error"),
        ({"class": "error", "result": {"regex": "("}}, "rule 2, result.regex"),
        ({"class": "error", "result": {"regex": "a"}, "verdict": "hold"}, "rule 2, verdict: is not a field of a rule"),
        ({"verdict": "hold", "name": 5}, "rule 2, name: must be a text"),
        ({"verdict": "hold", "words": "x" * 1001}, "rule 2, words: has 1001"),
    ],
)
def test_what_is_wrong_with_a_policy_is_said_by_rule_and_field(rule: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        read_policy([{"verdict": "hold"}, rule])


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy([{"verdict": "x"}, {"verdict": "hold"}, {"tool": 5, "verdict": "hold"}])
    assert [line.split(",")[0] for line in caught.value.problems] == ["rule 1", "rule 3"]
    with pytest.raises(PolicyError, match="list of rules"):
        read_policy({"verdict": "hold"})
    with pytest.raises(PolicyError, match="at most 200"):
        read_policy([{"verdict": "hold"}] * 201)


@pytest.mark.parametrize(
    ("result", "content", "expected"),
    [
        ({"path": "$.status", "equals": "failed"}, '{"status": "failed"}', R.ERROR),
        ({"path": "$.status", "equals": "failed"}, '{"status": "done"}', R.OK),
        ({"path": "$.status", "equals": "failed"}, "no json", R.OK),
        ({"path": "$.rows", "empty": True}, '(exit code 0)\n{"rows": []}', R.ERROR),
        ({"path": "$.rows", "empty": True}, '(exit code 0)\n{"rows": []}\n[standard error]\nslow', R.ERROR),
        ({"path": "$.rows", "empty": True}, '(exit code 0)\n{"rows": [1]}', R.OK),
        ({"empty": True}, "(exit code 0)\n[]", R.ERROR),
        ({"regex": "(?i)no rows"}, "No rows found", R.ERROR),
        ({"empty": True}, "{}", R.ERROR),
        ({"empty": True}, "5", R.OK),
    ],
)
def test_a_result_is_named_by_the_profiles_rule(result: dict[str, Any], content: str, expected: R) -> None:
    policy = read_policy([{"tool": "query", "result": result, "class": "error", "words": "the query failed"}])
    named_so, told, rule = name_result(policy, "query", Effect.NONE, R.OK, content)
    assert named_so is expected
    assert told == (content if expected is R.OK else f"[result: error - the query failed]\n{content}")
    assert (rule is None) is (expected is R.OK)
    assert name_result(policy, "other", Effect.NONE, R.OK, content)[0] is R.OK


def test_a_rule_never_makes_a_result_better() -> None:
    policy = read_policy([{"result": {"regex": "x"}, "class": "empty"}])
    for worse in (R.ERROR, R.AMBIGUOUS, R.TIMEOUT, R.EMPTY):
        content = f"[result: {worse.value} - why]\nx"
        assert name_result(policy, "t", Effect.NONE, worse, content) == (worse, content, None)
    named_so, told, _ = name_result(policy, "t", Effect.NONE, R.TRUNCATED, "[result: truncated - much]\nx")
    assert named_so is R.EMPTY
    assert told == "[result: empty - the profile names it so: $ matches x]\nx"
    # the line that names the class is not what a rule reads
    policy = read_policy([{"result": {"regex": "truncated"}, "class": "error"}])
    assert name_result(policy, "t", Effect.NONE, R.TRUNCATED, "[result: truncated - much]\nx")[0] is R.TRUNCATED
