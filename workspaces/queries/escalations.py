"""The inbox's reads: open questions by deadline, answered ones by age, and what a card shows of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import Effect
from workspaces.domain.escalations import DECISIONS, NEEDS_WORDS, Decision
from workspaces.domain.policy import Approver, OnExpiry
from workspaces.domain.states import EscalationKind, EscalationStatus
from workspaces.models import Alert, Escalation, LedgerEntry, ToolCall, User

from .access import may_operate, visible_escalations
from .alert_page import alerts_of_escalations

PAGE_SIZE = 30

HEADINGS: dict[EscalationKind, str] = {
    EscalationKind.HELD_CALL: "A call waits for approval",
    EscalationKind.QUESTION: "The agent asks",
    EscalationKind.UNKNOWN_OUTCOME: "Nobody knows whether a call went through",
    EscalationKind.PROVIDER: "The model provider fails",
    EscalationKind.SANDBOX: "The sandbox fails",
    EscalationKind.NO_ACTION: "The agent does nothing",
    EscalationKind.CONTEXT_FULL: "The context is full",
    EscalationKind.LIMIT: "A limit is reached",
    EscalationKind.DEADLINE: "The time is up",
    EscalationKind.INTAKE: "The attachments could not be brought in",
    EscalationKind.INCIDENT: "The agent is stuck",
    EscalationKind.INTERNAL: "agentdesk itself failed",
}
ON_EXPIRY: dict[EscalationKind, str] = {
    EscalationKind.HELD_CALL: "the call is rejected and the agent goes on",
    EscalationKind.QUESTION: "the agent is told that nobody answered",
}
OTHERWISE_ON_EXPIRY = "the task is paused"
LEDGER_WORDS: dict[str, str] = {
    LedgerEntry.State.INTENDED: "begun, never completed",
    LedgerEntry.State.COMPLETED: "completed meanwhile",
    LedgerEntry.State.NOT_DONE: "found not to have happened",
    LedgerEntry.State.UNKNOWN: "begun, then given up",
}
RAISED_ON_EXPIRY = "an owner is asked, with a new deadline"
NEEDS: dict[str, str] = {
    Approver.OWNER.value: "An owner of this workspace has to approve it.",
    Approver.TWO_PERSONS.value: "Two persons have to approve it.",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer. `effect`: what pressing it does, said beforehand."""

    decision: Decision
    label: str
    effect: str
    asks_words: str = ""  # the label of the words' field; empty: no field
    words_needed: bool = False
    asks_arguments: bool = False
    asks_steps: bool = False
    asks_minutes: bool = False
    primary: bool = False
    danger: bool = False


CHOICES: dict[Decision, Choice] = {
    choice.decision: choice
    for choice in (
        Choice(Decision.APPROVE, "Approve", "Runs this call once, with exactly these arguments.", primary=True),
        Choice(
            Decision.EDIT,
            "Edit and approve",
            "Runs the call once, with the arguments as you leave them here. Both versions are kept.",
            asks_arguments=True,
        ),
        Choice(
            Decision.ALWAYS,
            "Always allow this exact call",
            "Runs it now, and from now on each time that the agent makes exactly this call again in this task, without "
            "asking anybody. Other arguments are asked about as before. It holds until somebody revokes it beside the "
            "task's checkpoints; a fork of the task does not inherit it.",
            asks_words="Why",
        ),
        Choice(
            Decision.REJECT,
            "Reject",
            "The call is not run. The agent reads your words and goes on.",
            asks_words="What the agent is told",
            danger=True,
        ),
        Choice(
            Decision.ANSWER,
            "Answer",
            "Your words are given to the agent as the result.",
            asks_words="Your answer",
        ),
        Choice(
            Decision.HAPPENED,
            "It did happen",
            "The call is not run again. Your words stand as its result.",
            asks_words="What came of it",
        ),
        Choice(
            Decision.NOT_DONE,
            "It did not happen: run it",
            "Runs the call again. If it did happen after all, it happens twice.",
            danger=True,
        ),
        Choice(
            Decision.CONTINUE,
            "Continue",
            "The task tries again from where it stands.",
            asks_words="Words for the agent (optional)",
            primary=True,
        ),
        Choice(
            Decision.RAISE,
            "Raise the limit",
            "The task goes on, with this many more steps.",
            asks_words="Words for the agent (optional)",
            asks_steps=True,
            primary=True,
        ),
        Choice(
            Decision.EXTEND,
            "Give it more time",
            "The task goes on, and asks again when this much more time has passed.",
            asks_words="Words for the agent (optional)",
            asks_minutes=True,
            primary=True,
        ),
        Choice(
            Decision.GIVE_UP,
            "Give up",
            "The task fails with your words. It can still be rolled back to a checkpoint.",
            asks_words="Why",
            danger=True,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Typed:
    """What a refused answer had in its fields, to be shown again."""

    decision: str = ""
    words: str = ""
    arguments: str = ""
    extra_steps: str = ""
    extra_minutes: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """All that `escalations/_card.html` shows. The inbox and the task page make it with `card_of`."""

    escalation: Escalation
    heading: str
    on_expiry: str
    may_operate: bool
    choices: Sequence[Choice] = field(default_factory=tuple)
    typed: Typed = Typed()
    error: str = ""
    alert: Alert | None = None  # that it is in

    @property
    def is_open(self) -> bool:
        return self.escalation.status == EscalationStatus.OPEN.value

    @property
    def decided(self) -> str:
        """The words of the button that was pressed."""
        return CHOICES[Decision(self.escalation.decision)].label

    @property
    def needs(self) -> str:
        """Whose approval it takes, where that is more than any operator's."""
        if self.escalation.approver == Approver.TWO_PERSONS.value and self.escalation.raised_at is not None:
            return "Two persons have to approve it, one of them an owner: nobody had answered in time."
        return NEEDS.get(self.escalation.approver, "")

    @property
    def difference(self) -> str:
        """What an operator changed in the arguments, as a unified diff; empty: nothing."""
        call = self.escalation.tool_call
        if call is None or call.proposed_arguments is None:
            return ""
        return unified_diff(_pretty(call.proposed_arguments), _pretty(call.arguments), "arguments")

    @property
    def known(self) -> Known | None:
        """What there is to know of a call whose outcome nobody knows."""
        call = self.escalation.tool_call
        if call is None or self.escalation.kind != EscalationKind.UNKNOWN_OUTCOME.value:
            return None
        entry = LedgerEntry.objects.filter(key=call.effect_key).select_related("tool_call__step").first()
        begun = call if call.attempt or entry is None else entry.tool_call
        return Known(
            begun=begun,
            elsewhere=begun.pk != call.pk,
            started_at=begun.started_at,
            attempt=begun.attempt,
            key=call.effect_key,
            ledger=LEDGER_WORDS[entry.state] if entry else "",
            output=begun.result,
        )


@dataclass(frozen=True, slots=True)
class Known:
    """`begun`: the call that was started, which may be another task's or branch's. `output`: what came of it."""

    begun: ToolCall
    elsewhere: bool
    started_at: datetime | None
    attempt: int
    key: str
    ledger: str
    output: str


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def card_of(user: User | AnonymousUser, escalation: Escalation, *, typed: Typed | None = None, error: str = "") -> Card:
    card = make_card(escalation, may_operate(user, escalation.task.workspace), typed=typed, error=error)
    if escalation.first_approved_by_id is None or escalation.first_approved_by_id != user.pk:
        return card
    # whoever was the first cannot be the second: no button that would only be refused
    return replace(card, choices=[choice for choice in card.choices if choice.decision is not Decision.APPROVE])


def cards_of(user: User | AnonymousUser, escalations: Sequence[Escalation]) -> list[Card]:
    """In the same order, each with the alert that it is in."""
    alerts = alerts_of_escalations(user, [escalation.pk for escalation in escalations]) if escalations else {}
    return [replace(card_of(user, each), alert=alerts.get(each.pk)) for each in escalations]


def make_card(escalation: Escalation, can_operate: bool, *, typed: Typed | None = None, error: str = "") -> Card:
    kind = EscalationKind(escalation.kind)
    return Card(
        escalation=escalation,
        heading=HEADINGS[kind],
        on_expiry=_on_expiry(escalation, kind),
        may_operate=can_operate,
        choices=[_choice(decision, escalation, kind) for decision in DECISIONS[kind] if _offered(decision, escalation)],
        typed=typed or Typed(),
        error=error,
    )


def _on_expiry(escalation: Escalation, kind: EscalationKind) -> str:
    further = escalation.on_expiry == OnExpiry.ESCALATE.value and escalation.raised_at is None
    if kind is EscalationKind.HELD_CALL and further:
        return RAISED_ON_EXPIRY
    return ON_EXPIRY.get(kind, OTHERWISE_ON_EXPIRY)


def _offered(decision: Decision, escalation: Escalation) -> bool:
    return decision is not Decision.ALWAYS or escalation.approver != Approver.TWO_PERSONS.value


def _choice(decision: Decision, escalation: Escalation, kind: EscalationKind) -> Choice:
    choice = replace(CHOICES[decision], words_needed=decision in NEEDS_WORDS)
    two = escalation.approver == Approver.TWO_PERSONS.value
    if decision is Decision.ANSWER and kind is EscalationKind.HELD_CALL:
        return replace(
            choice,
            label="Answer in its place",
            effect="The call is not run. The agent gets your words as its result.",
            asks_words="The result that the agent is given",
        )
    if decision is Decision.ANSWER:
        return replace(choice, primary=True)
    call = escalation.tool_call
    if decision is Decision.ALWAYS and call is not None and call.effect == Effect.IRREVERSIBLE.value:
        warning = " What it does cannot be undone, and it will be done each time without a person looking at it."
        return replace(choice, effect=choice.effect + warning, danger=True)
    if decision is Decision.APPROVE and two:
        first = "It runs once a second person has approved it too."
        second = "You are the second: it runs now, once, with exactly these arguments."
        return replace(choice, effect=second if escalation.first_approved_by_id else first)
    if decision is Decision.EDIT and two:
        return replace(choice, effect=f"{choice.effect} A second person has to approve what you leave here.")
    return choice


def _with_all(escalations: QuerySet[Escalation]) -> QuerySet[Escalation]:
    return escalations.select_related(
        "task__workspace", "task__profile_version__profile", "tool_call__step", "answered_by", "first_approved_by"
    )


def open_cards(user: User | AnonymousUser) -> list[Card]:
    """Every open question that the user can see, the first deadline first (at most 200)."""
    found = _with_all(visible_escalations(user)).filter(status=EscalationStatus.OPEN.value)
    return cards_of(user, list(found.order_by("deadline", "pk")[:200]))


def closed_cards(user: User | AnonymousUser, page: int) -> tuple[list[Card], bool]:
    """A page (1, 2, …) of closed questions, newest first, and whether more follow."""
    found = _with_all(visible_escalations(user)).exclude(status=EscalationStatus.OPEN.value)
    start = (page - 1) * PAGE_SIZE
    rows = list(found.order_by("-opened_at", "-pk")[start : start + PAGE_SIZE + 1])
    return cards_of(user, rows[:PAGE_SIZE]), len(rows) > PAGE_SIZE


def cards_of_tasks(user: User | AnonymousUser, tasks: Iterable[int]) -> list[Card]:
    """The questions of these tasks that are open or were closed lately enough to be on somebody's screen."""
    found = _with_all(visible_escalations(user)).filter(task__in=list(tasks)).order_by("-pk")[:200]
    return cards_of(user, list(found))
