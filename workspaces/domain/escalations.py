"""Which answers each kind of escalation takes. Pure."""

from __future__ import annotations

from enum import StrEnum

from workspaces.domain.states import EscalationKind


class Decision(StrEnum):
    APPROVE = "approve"  # run the held call as it is
    ALWAYS = "always"  # run it, and from now on each time that it comes again in this task
    EDIT = "edit"  # run it with other arguments
    REJECT = "reject"  # do not run it; the words go to the model
    ANSWER = "answer"  # the words are the call's result
    HAPPENED = "happened"  # the unknown effect took place; the words are its result
    NOT_DONE = "not_done"  # it did not; run it now
    CONTINUE = "continue"  # try again; words, if any, go to the model
    RAISE = "raise"  # more steps, then go on
    EXTEND = "extend"  # more time, then go on
    GIVE_UP = "give_up"  # the task fails with the words


K = EscalationKind
D = Decision

DECISIONS: dict[EscalationKind, tuple[Decision, ...]] = {
    K.HELD_CALL: (D.APPROVE, D.EDIT, D.ALWAYS, D.REJECT, D.ANSWER),
    K.QUESTION: (D.ANSWER,),
    K.UNKNOWN_OUTCOME: (D.HAPPENED, D.NOT_DONE, D.REJECT),
    K.PROVIDER: (D.CONTINUE, D.GIVE_UP),
    K.SANDBOX: (D.CONTINUE, D.GIVE_UP),
    K.NO_ACTION: (D.CONTINUE, D.GIVE_UP),
    K.CONTEXT_FULL: (D.CONTINUE, D.GIVE_UP),
    K.LIMIT: (D.RAISE, D.GIVE_UP),
    K.DEADLINE: (D.EXTEND, D.GIVE_UP),
    K.INTAKE: (D.CONTINUE, D.GIVE_UP),
    K.INCIDENT: (D.CONTINUE, D.GIVE_UP),
    K.INTERNAL: (D.CONTINUE, D.GIVE_UP),
}

NEEDS_WORDS = frozenset({D.ALWAYS, D.REJECT, D.ANSWER, D.HAPPENED, D.GIVE_UP})
LETS_RUN = frozenset({D.APPROVE, D.EDIT, D.ALWAYS, D.NOT_DONE})  # for these the approver is asked for


def problem_with(kind: EscalationKind, decision: Decision, words: str) -> str:
    """Why this answer cannot be taken, or an empty string."""
    if decision not in DECISIONS[kind]:
        allowed = ", ".join(choice.value for choice in DECISIONS[kind])
        return f"This escalation takes {allowed}, not {decision.value}."
    if decision in NEEDS_WORDS and not words.strip():
        told = "" if decision is Decision.ALWAYS else ", and the agent is told"
        return f"Write a few words: they are kept{told}."
    return ""
