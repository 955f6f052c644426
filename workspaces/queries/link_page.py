"""What the page of a link that acts says: what it would do, to what, as whom, until when; or why it can do nothing.

Who opens a link may be anybody who has it. Of a link that is not good it tells as little as explains that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workspaces.domain.action_links import ANSWERS, STATUS, Standing
from workspaces.domain.alerts import AlertState
from workspaces.domain.endpoints import LinkAction
from workspaces.domain.escalations import NEEDS_WORDS
from workspaces.domain.states import EscalationStatus
from workspaces.models import ActionLink, ToolCall, User

from .action_links import says_too_little, standing_of
from .escalations import CHOICES, card_of

A = LinkAction


@dataclass(frozen=True, slots=True)
class Deed:
    """What one kind of link does, in words. `asks`: the label of the words' field; empty: no field."""

    heading: str
    does: str
    button: str
    asks: str = ""
    words_needed: bool = False
    danger: bool = False


DEEDS: dict[LinkAction, Deed] = {
    A.ACKNOWLEDGE: Deed(
        "Acknowledge this alert?",
        "It says that you have seen it and deal with it: nobody is reminded of it any more. It stops nothing, and the "
        "alert is resolved when its trouble is over.",
        "Acknowledge",
        asks="A word to the others (optional)",
    ),
    A.RESOLVE: Deed(
        "Resolve this alert?",
        "It closes the alert. It stops nothing: what the alert is about goes on as it is.",
        "Resolve",
        asks="How it was resolved",
        words_needed=True,
    ),
    A.APPROVE: Deed("Approve this call?", "", "Approve"),
    A.REJECT: Deed("Reject this call?", "", "Reject", danger=True),
    A.CONFIRM: Deed(
        "Do you want alerts at this address?",
        "Whoever has made this endpoint wants alerts sent to your mailbox. Nothing is sent there unless you confirm. "
        "Did you not expect this, close the page: the link ends by itself.",
        "Confirm the address",
    ),
}


@dataclass(frozen=True, slots=True)
class LinkPage:
    """All that links/show.html shows. `refusal`: why it cannot be used, when `standing` is not good."""

    link: ActionLink
    standing: Standing
    deed: Deed
    person: User
    signed_in: bool
    refusal: str = ""
    call: ToolCall | None = None

    @property
    def status(self) -> int:
        return STATUS[self.standing]

    @property
    def is_good(self) -> bool:
        return self.standing is Standing.GOOD

    @property
    def confirms(self) -> bool:
        return self.link.action == A.CONFIRM.value

    def as_json(self) -> dict[str, Any]:
        """For machines: what the page says."""
        link = self.link
        told: dict[str, Any] = {"action": link.action, "standing": self.standing.value, "said": self.refusal}
        if not self.is_good:
            return told
        told |= {"said": self.deed.does, "expires_at": link.expires_at.isoformat()}
        told["words_needed"] = self.deed.words_needed
        if not self.confirms:
            told["acts_as"] = self.person.get_username()
        if link.alert is not None:
            told["alert"] = {"id": link.alert_id, "title": link.alert.title, "state": link.alert.state}
        if link.escalation is not None:
            told["question"] = link.escalation.question
        if self.call is not None:
            told["call"] = {"tool": self.call.name, "effect": self.call.effect, "arguments": self.call.arguments}
        return told


def link_page(link: ActionLink, user: User | None, now: datetime) -> LinkPage:
    """`user`: who is signed in."""
    person = user or link.acts_as
    found = standing_of(link, person, now, signed_in=user is not None)
    deed = DEEDS[A(link.action)]
    if found is not Standing.GOOD:
        refusal = refusal_of(link, person, found, signed_in=user is not None)
        return LinkPage(link, found, deed, person, user is not None, refusal)
    call = None
    if link.escalation is not None:
        deed, call = _answers(link, person), link.escalation.tool_call
    return LinkPage(link, found, deed, person, user is not None, call=call)


def _answers(link: ActionLink, person: User) -> Deed:
    """In the words of the question's own card."""
    assert link.escalation is not None
    decision = ANSWERS[A(link.action)]
    choice = next(choice for choice in card_of(person, link.escalation).choices if choice.decision is decision)
    deed = DEEDS[A(link.action)]
    return Deed(
        heading=deed.heading,
        does=choice.effect,
        button=choice.label,
        asks=choice.asks_words,
        words_needed=decision in NEEDS_WORDS,
        danger=choice.danger,
    )


def refusal_of(link: ActionLink, person: User, standing: Standing, *, signed_in: bool) -> str:
    """Why the link cannot be used, for whoever has it."""
    return _REFUSALS[standing](link, person, signed_in)


def _used(link: ActionLink, person: User, signed_in: bool) -> str:
    by = "" if link.used_by is None else f" by {_name(link.used_by)}"
    return f"It was used{by} {_at(link.used_at)}. A link works once."


def _expired(link: ActionLink, person: User, signed_in: bool) -> str:
    return f"It could be used until {_moment(link.expires_at)}. {_ELSEWHERE}"


def _revoked(link: ActionLink, person: User, signed_in: bool) -> str:
    return f"It was revoked: the endpoint that it was sent to was changed, disabled or removed. {_ELSEWHERE}"


def _forbidden(link: ActionLink, person: User, signed_in: bool) -> str:
    if signed_in:
        return f"You are signed in as {_name(person)}, who may not do this."
    if says_too_little(link):
        return "Two people have to approve this call, and it was sent to where many read. Sign in, then open it again."
    return f"It acts as {_name(person)}, who may not do this any more."


def _changed(link: ActionLink, person: User, signed_in: bool) -> str:
    if link.action == A.CONFIRM.value:
        return "The endpoint has another address by now. A link to confirm it was sent there."
    return (
        f"The arguments have been edited since it was sent, and it approves only those that it was sent with. {_LOOK}"
    )


def _decided(link: ActionLink, person: User, signed_in: bool) -> str:
    if link.action == A.CONFIRM.value:
        return "This address is confirmed already."
    asked, alert = link.escalation, link.alert
    if A(link.action) in ANSWERS:
        if asked is None:
            return "The question that it answers is gone."
        if asked.status == EscalationStatus.OPEN.value:
            return f"{_name(person)} has approved this call already. It needs a second person."
        if asked.status == EscalationStatus.ANSWERED.value and asked.answered_by is not None:
            label = CHOICES[next(d for d in CHOICES if d.value == asked.decision)].label
            return f"{_name(asked.answered_by)} has answered already, {_at(asked.answered_at)}: {label}."
        if asked.status == EscalationStatus.EXPIRED.value:
            return f"Nobody had answered by {_moment(asked.deadline)}, so it is decided."
        return "The question is not asked any more: its task was rolled back, cancelled or ended."
    if alert is None:
        return "The alert is gone."
    if alert.state == AlertState.RESOLVED.value and alert.resolved_by is None:
        return f"The alert ended by itself {_at(alert.resolved_at)}."
    if alert.state == AlertState.RESOLVED.value:
        return f"{_name(alert.resolved_by)} has resolved this alert {_at(alert.resolved_at)}."
    assert alert.acknowledged_by is not None
    return f"{_name(alert.acknowledged_by)} has acknowledged this alert already, {_at(alert.acknowledged_at)}."


_ELSEWHERE = "What it was for can still be done on agentdesk's own pages."
_LOOK = "Look at them in the inbox, then decide."
_REFUSALS: dict[Standing, Callable[[ActionLink, User, bool], str]] = {
    Standing.USED: _used,
    Standing.EXPIRED: _expired,
    Standing.REVOKED: _revoked,
    Standing.FORBIDDEN: _forbidden,
    Standing.CHANGED: _changed,
    Standing.DECIDED: _decided,
}


def _name(user: User | None) -> str:
    return "" if user is None else user.get_full_name() or user.get_username()


def _moment(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def _at(at: datetime | None) -> str:
    return "" if at is None else f"at {at:%H:%M} UTC on {at:%Y-%m-%d}"
