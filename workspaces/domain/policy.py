"""A profile's policy: which calls run, which wait for whom, which go back, and what a result is named. Pure.

An ordered list of rules; the first that matches decides. What no rule matches is judged as without a policy: an
irreversible call is held, everything else runs. A rule that cannot be sure (a text too long to be looked at, a number
that is none) counts as matching when it holds or corrects, and as not matching when it allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from workspaces.domain.classify import named
from workspaces.domain.effects import Effect
from workspaces.domain.matching import Answer, Match, MatchError, as_value, check_glob, glob_fits, read_match
from workspaces.domain.results import ResultClass
from workspaces.domain.schema import show
from workspaces.domain.states import Verdict

_T = TypeVar("_T", bound=StrEnum)

MAX_RULES = 200
MAX_MATCHES = 20
MAX_NAME_CHARS = 80
MAX_WORDS_CHARS = 1_000
MIN_EXPIRES_S = 60
MAX_EXPIRES_S = 30 * 86_400
CALL_FIELDS = (
    *("name", "tool", "effect", "arguments", "verdict", "words"),
    *("approver", "expires_s", "on_expiry"),
)
RESULT_FIELDS = ("name", "tool", "effect", "result", "class", "words")


class Approver(StrEnum):
    """Who may approve a held call. Anybody who operates the workspace may still reject it."""

    ANY_OPERATOR = "any_operator"
    OWNER = "owner"  # an owner of the workspace; site staff count as such
    TWO_PERSONS = "two_persons"  # two different operators


class OnExpiry(StrEnum):
    REJECT = "reject"
    ESCALATE = "escalate"  # once more, to an owner, with a new deadline; then it is rejected


# worst last: a rule may only make a result worse, never call a failure a success
_EXIT_CODE = re.compile(r"\A\(exit code \d+\)\n")
_BY_WORTH = (ResultClass.OK, ResultClass.TRUNCATED, ResultClass.EMPTY, ResultClass.AMBIGUOUS, ResultClass.ERROR)
NAMED_BY_RULES = (ResultClass.EMPTY, ResultClass.AMBIGUOUS, ResultClass.ERROR)


class PolicyError(ValueError):
    """A policy that cannot be taken. `problems`: each names the rule's number and the field."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which calls a rule is about. `number` counts from 1, over the whole list."""

    number: int
    name: str
    tool: str
    effects: frozenset[Effect]  # empty: every one

    @property
    def title(self) -> str:
        return f"rule {self.number} ({self.name})" if self.name else f"rule {self.number}"

    @property
    def listed_effects(self) -> list[str]:
        return [effect.value for effect in Effect if effect in self.effects]

    @property
    def is_explicit(self) -> bool:
        """It names tools, or the irreversible effect: only then may it let an irreversible call run."""
        return Effect.IRREVERSIBLE in self.effects or bool(self.tool.strip("*?"))

    def holds(self, tool: str, effect: Effect) -> bool:
        return (not self.effects or effect in self.effects) and glob_fits(self.tool, tool)


@dataclass(frozen=True, slots=True)
class CallRule:
    scope: Scope
    matches: tuple[Match, ...]
    verdict: Verdict
    words: str = ""  # told to the model (correct) or to the operator (hold)
    approver: Approver = Approver.ANY_OPERATOR
    expires_s: int | None = None  # None: the profile's
    on_expiry: OnExpiry = OnExpiry.REJECT

    def decides(self, tool: str, arguments: Mapping[str, Any], effect: Effect) -> bool:
        allows = self.verdict is Verdict.ALLOW
        if not self.scope.holds(tool, effect):
            return False
        if allows and effect is Effect.IRREVERSIBLE and not self.scope.is_explicit:
            return False
        for match in self.matches:
            answer = match.ask(dict(arguments), every=allows)
            if answer is Answer.NO or (answer is Answer.UNSURE and allows):
                return False
        return True


@dataclass(frozen=True, slots=True)
class ResultRule:
    scope: Scope
    match: Match
    result_class: ResultClass
    words: str = ""

    @property
    def said(self) -> str:
        return self.words or f"the profile names it so: {self.match.words}"


@dataclass(frozen=True, slots=True)
class Policy:
    calls: tuple[CallRule, ...] = ()
    results: tuple[ResultRule, ...] = ()

    @property
    def rules(self) -> list[CallRule | ResultRule]:
        """All of them as they were written."""
        return sorted((*self.calls, *self.results), key=lambda rule: rule.scope.number)

    def rule(self, number: int | None) -> CallRule | None:
        return next((rule for rule in self.calls if rule.scope.number == number), None)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What becomes of a call that fits its tool. `rule`: the one that decided, if any did."""

    verdict: Verdict
    rule: CallRule | None = None

    @property
    def approver(self) -> Approver:
        return self.rule.approver if self.rule else Approver.ANY_OPERATOR

    @property
    def on_expiry(self) -> OnExpiry:
        return self.rule.on_expiry if self.rule else OnExpiry.REJECT

    def expires_s(self, otherwise: int) -> int:
        return self.rule.expires_s if self.rule and self.rule.expires_s else otherwise


def rule_on(policy: Policy, tool: str, arguments: Mapping[str, Any], effect: Effect) -> Ruling:
    """The first rule that matches decides; else an irreversible call is held and any other allowed."""
    for rule in policy.calls:
        if rule.decides(tool, arguments, effect):
            return Ruling(rule.verdict, rule)
    return Ruling(Verdict.HOLD if effect is Effect.IRREVERSIBLE else Verdict.ALLOW)


def name_result(
    policy: Policy, tool: str, effect: Effect, result_class: ResultClass, content: str
) -> tuple[ResultClass, str, ResultRule | None]:
    """A result's class and text after the policy's rules, and the rule that changed it. It only ever gets worse.

    The rules read the result without the line that names its class and without the exit code before a command's output;
    paths look into its standard output. The model is told the new class by the first line.
    """
    if result_class not in _BY_WORTH:
        return result_class, content, None
    line, _, rest = content.partition("\n")
    body = rest if line.startswith("[result: ") else content
    for rule in policy.results:
        if not rule.scope.holds(tool, effect):
            continue
        printed = _EXIT_CODE.sub("", body)
        value = as_value(printed.partition("\n[standard error]\n")[0]) if rule.match.steps else printed
        if rule.match.ask(value, every=False) is not Answer.YES:
            continue
        if _BY_WORTH.index(rule.result_class) <= _BY_WORTH.index(result_class):
            return result_class, content, None
        return rule.result_class, "\n".join(part for part in (named(rule.result_class, rule.said), body) if part), rule
    return result_class, content, None


def read_policy(written: Any) -> Policy:
    """The rules, in order. Raises PolicyError with everything that is wrong."""
    if not isinstance(written, list):
        raise PolicyError(["a policy is a list of rules"])
    if len(written) > MAX_RULES:
        raise PolicyError([f"at most {MAX_RULES} rules, not {len(written)}"])
    calls, results, problems = [], [], []
    for number, item in enumerate(written, start=1):
        try:
            rule = _read_rule(number, item)
        except MatchError as error:
            problems.append(f"rule {number}{f', {error.field}' if error.field else ''}: {error.reason}")
            continue
        if isinstance(rule, CallRule):
            calls.append(rule)
        else:
            results.append(rule)
    if problems:
        raise PolicyError(problems)
    return Policy(tuple(calls), tuple(results))


def _read_rule(number: int, item: Any) -> CallRule | ResultRule:
    if not isinstance(item, Mapping):
        raise MatchError("", f"must be an object with a verdict, not {show(item)}")
    about_results = "result" in item or "class" in item
    fields = RESULT_FIELDS if about_results else CALL_FIELDS
    for unknown in [name for name in item if name not in fields]:
        what = "a rule about results" if about_results else "a rule about calls"
        raise MatchError(str(unknown), f"is not a field of {what}; known are {', '.join(fields)}")
    scope = _scope(number, item)
    words = _text(item, "words", MAX_WORDS_CHARS)
    if about_results:
        try:
            match = read_match(item.get("result"), path_needed=False)
        except MatchError as error:
            raise MatchError(f"result{f'.{error.field}' if error.field else ''}", error.reason) from None
        return ResultRule(scope, match, _choice(item, "class", NAMED_BY_RULES), words)
    verdict = _choice(item, "verdict", (Verdict.ALLOW, Verdict.HOLD, Verdict.CORRECT))
    if verdict is Verdict.CORRECT and not words:
        raise MatchError("words", "are missing: the agent is told them when its call is refused")
    if verdict is not Verdict.HOLD:
        for name in ("approver", "expires_s", "on_expiry"):
            if name in item:
                raise MatchError(name, f"only says something about held calls, and this verdict is {verdict.value}")
    return CallRule(
        scope,
        _matches(item.get("arguments", [])),
        verdict,
        words,
        _choice(item, "approver", tuple(Approver), Approver.ANY_OPERATOR),
        _expires(item.get("expires_s")),
        _choice(item, "on_expiry", tuple(OnExpiry), OnExpiry.REJECT),
    )


def _scope(number: int, item: Mapping[str, Any]) -> Scope:
    tool = item.get("tool", "*")
    check_glob(tool, "tool")
    given = item.get("effect", [])
    effects = given if isinstance(given, list) else [given]
    choices = [effect.value for effect in Effect]
    for effect in effects:
        if effect not in choices:
            raise MatchError("effect", f"must be one or several of {', '.join(choices)}, not {show(effect)}")
    if "effect" in item and not effects:
        raise MatchError("effect", "names none, so nothing could match")
    return Scope(number, _text(item, "name", MAX_NAME_CHARS), tool, frozenset(Effect(effect) for effect in effects))


def _matches(written: Any) -> tuple[Match, ...]:
    if not isinstance(written, list):
        raise MatchError("arguments", f"must be a list of tests, not {show(written)}")
    if len(written) > MAX_MATCHES:
        raise MatchError("arguments", f"at most {MAX_MATCHES} tests, not {len(written)}")
    found = []
    for at, item in enumerate(written):
        try:
            found.append(read_match(item, path_needed=True))
        except MatchError as error:
            raise MatchError(f"arguments[{at}]{f'.{error.field}' if error.field else ''}", error.reason) from None
        if "empty" in found[-1].tests and "exists" in found[-1].tests:
            raise MatchError(f"arguments[{at}]", "asks for empty and exists at once: give one of them")
    return tuple(found)


def _text(item: Mapping[str, Any], field: str, limit: int) -> str:
    value = item.get(field, "")
    if not isinstance(value, str):
        raise MatchError(field, f"must be a text, not {show(value)}")
    if len(value) > limit:
        raise MatchError(field, f"has {len(value)} characters, at most {limit}")
    return value.strip()


def _choice(item: Mapping[str, Any], field: str, choices: tuple[_T, ...], otherwise: _T | None = None) -> _T:
    value = item.get(field)
    if value is None and otherwise is not None and field not in item:
        return otherwise
    for choice in choices:
        if value == choice.value:
            return choice
    raise MatchError(field, f"must be one of {', '.join(choice.value for choice in choices)}, not {show(value)}")


def _expires(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not MIN_EXPIRES_S <= value <= MAX_EXPIRES_S:
        raise MatchError("expires_s", f"must be whole seconds, {MIN_EXPIRES_S} to {MAX_EXPIRES_S}, not {show(value)}")
    return value
