"""The gate: judges every call that a model proposes, before any of them runs. Pure.

Verdicts: `allow`; `correct`, back to the model with exact evidence; `hold`, for an operator; `replay`, the
recorded result of an effect that is completed already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from workspaces.domain.effects import Effect, arguments_hash
from workspaces.domain.names import nearest_names
from workspaces.domain.policy import CallRule, Policy, rule_on
from workspaces.domain.replies import ProposedCall
from workspaces.domain.schema import Problem
from workspaces.domain.states import Verdict

NO_POLICY = Policy()


class KnownTool(Protocol):
    """What the gate has to know of a tool (tools/base.ToolSpec is one)."""

    @property
    def effect(self) -> Effect: ...

    def effect_of(self, arguments: Mapping[str, Any]) -> Effect: ...

    def problems_of(self, arguments: Any) -> list[Problem]: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """`told` is what the model reads when the verdict is `correct`. `call_hash` is empty without arguments."""

    verdict: Verdict
    effect: Effect | None
    call_hash: str = ""
    problems: tuple[Problem, ...] = ()
    told: str = ""
    rule: CallRule | None = None  # of the policy: the one that decided, if any did


def judge(call: ProposedCall, tools: Mapping[str, KnownTool], policy: Policy = NO_POLICY) -> Judgement:
    """Everything but the ledger: name, arguments, policy. The order is that of what a model can mend first."""
    tool = tools.get(call.name)
    if tool is None:
        return _correct(None, Problem("$", _unknown(call.name, tools), call.name))
    if call.arguments is None:
        return _correct(tool.effect, Problem("$", f"{call.problem or 'unparsable'}: {call.detail}"))
    problems = tool.problems_of(call.arguments)
    if problems:
        return _correct(tool.effect, *problems)
    effect = tool.effect_of(call.arguments)
    ruling = rule_on(policy, call.name, call.arguments, effect)
    if ruling.verdict is Verdict.CORRECT and ruling.rule is not None:
        return _refused(effect, ruling.rule)
    return Judgement(
        verdict=ruling.verdict,
        effect=effect,
        call_hash=arguments_hash(call.name, call.arguments),
        rule=ruling.rule,
    )


def _refused(effect: Effect, rule: CallRule) -> Judgement:
    """Not wrong, but not allowed: to say "correct it" would have the model try other ways to the same end."""
    problem = Problem("$", f"{rule.scope.title} of the profile's policy refuses it: {rule.words}")
    told = f"This call was not run: the profile's policy does not allow it. {rule.words}"
    return Judgement(verdict=Verdict.CORRECT, effect=effect, problems=(problem,), told=told, rule=rule)


def _correct(effect: Effect | None, *problems: Problem) -> Judgement:
    lines = "\n".join(f"- {problem.path}: {problem.reason}" for problem in problems)
    told = f"This call was not run. What is wrong with it:\n{lines}\nCorrect it and call again."
    return Judgement(verdict=Verdict.CORRECT, effect=effect, problems=problems, told=told)


def _unknown(name: str, tools: Mapping[str, KnownTool]) -> str:
    nearest = nearest_names(name, tools)
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else f"There are: {', '.join(sorted(tools))}."
    return f"there is no tool named {name!r}. {hint}"
