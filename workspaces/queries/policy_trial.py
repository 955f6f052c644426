"""A policy tried on calls that were made: what each was judged, and what it would be now. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from workspaces.domain.effects import Effect
from workspaces.domain.policy import Approver, CallRule, Policy, name_result, rule_on
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.models import AgentProfile, ToolCall, User, Workspace

from .access import visible_tasks
from .profiles import policy_of

NEWEST = (50, 200, 500)


@dataclass(frozen=True, slots=True)
class Tried:
    """`before`, `after`: verdicts, and whose approval they take. `result_rule`: which rule names its result anew."""

    call: ToolCall
    arguments: dict[str, object]
    before: Verdict
    before_approver: Approver
    after: Verdict
    after_approver: Approver
    rule: CallRule | None
    result_before: str
    result_after: str
    result_rule: str

    @property
    def changed(self) -> bool:
        """A replay stays one, unless the policy now refuses the call: the ledger is asked after it."""
        if self.before is Verdict.REPLAY:
            return self.after is Verdict.CORRECT
        return (self.before, self.before_approver) != (self.after, self.after_approver)


@dataclass(frozen=True, slots=True)
class Trial:
    """Changed ones first, each group newest first."""

    rows: Sequence[Tried]
    changed: int
    renamed: int
    counts: Sequence[tuple[str, int, int]]  # verdict, before, after
    unread: int  # calls that were sent back before the policy is asked: their arguments did not fit


def calls_to_try(
    user: User, *, profile: AgentProfile | None = None, workspace: Workspace | None = None
) -> QuerySet[ToolCall]:
    """The calls that this person can see, newest first: of a profile's versions, or of a workspace, or all."""
    found = ToolCall.objects.filter(task__in=visible_tasks(user)).exclude(verdict="")
    if profile is not None:
        found = found.filter(task__profile_version__profile=profile)
    if workspace is not None:
        found = found.filter(task__workspace=workspace)
    return found.select_related("task__profile_version", "step").order_by("-pk")


def try_policy(policy: Policy, calls: Sequence[ToolCall]) -> Trial:
    tried, unread = [], 0
    for call in calls:
        if call.arguments is None or not call.effect or (call.verdict == Verdict.CORRECT and call.policy_rule is None):
            unread += 1
            continue
        tried.append(_try(policy, call))
    rows = sorted(tried, key=lambda each: not (each.changed or each.result_rule))
    verdicts = (Verdict.ALLOW, Verdict.HOLD, Verdict.CORRECT, Verdict.REPLAY)
    after = [Verdict.REPLAY if _stays_replay(each) else each.after for each in tried]
    before = [each.before for each in tried]
    counts = [(verdict.value, before.count(verdict), after.count(verdict)) for verdict in verdicts]
    return Trial(
        rows,
        changed=sum(each.changed for each in tried),
        renamed=sum(bool(each.result_rule) for each in tried),
        counts=[count for count in counts if count[1] or count[2]],
        unread=unread,
    )


def _try(policy: Policy, call: ToolCall) -> Tried:
    proposed = (call.arguments if call.proposed_arguments is None else call.proposed_arguments) or {}
    effect = Effect(call.effect)
    ruling = rule_on(policy, call.name, proposed, effect)
    old = policy_of(call.task.profile_version).rule(call.policy_rule)
    named_so, rule = call.result_class, None
    if call.result_class and not call.control:
        new_class, _, rule = name_result(policy, call.name, effect, ResultClass(call.result_class), call.result)
        named_so = new_class.value
    return Tried(
        call=call,
        arguments=proposed,
        before=Verdict(call.verdict),
        before_approver=old.approver if old else Approver.ANY_OPERATOR,
        after=ruling.verdict,
        after_approver=ruling.approver,
        rule=ruling.rule,
        result_before=call.result_class,
        result_after=named_so,
        result_rule=rule.scope.title if rule else "",
    )


def _stays_replay(tried: Tried) -> bool:
    return tried.before is Verdict.REPLAY and tried.after is not Verdict.CORRECT
