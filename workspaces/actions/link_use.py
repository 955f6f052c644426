"""A link that acts is used: once, as one person, by one conditional UPDATE in the transaction of what it does.

It decides nothing that a page would not: the same actions do it, and refuse it in the same words.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction

from workspaces.domain.action_links import ANSWERS, Standing
from workspaces.domain.alerts import Via
from workspaces.domain.endpoints import EndpointState, LinkAction
from workspaces.domain.escalations import Decision
from workspaces.domain.states import EscalationStatus
from workspaces.models import ActionLink, AuditEntry, Endpoint, User
from workspaces.queries.action_links import RELATED, standing_of
from workspaces.queries.link_page import refusal_of

from .alert_answers import acknowledge_alert, resolve_alert
from .clock import database_now
from .errors import Refused
from .escalations import answer_escalation
from .words import MESSAGE_CHARS, taken


class NotGood(Refused):
    """The link can do nothing, or not for this person. Nothing was written."""

    def __init__(self, standing: Standing, words: str) -> None:
        super().__init__(words)
        self.standing = standing


@dataclass(frozen=True, slots=True)
class Used:
    """What came of it, in words, and who did it."""

    words: str
    person: User | None


def use_link(uid: uuid.UUID, *, actor: User | None, address: str, words: str = "") -> Used:
    """Do what the link says, once. `actor`: who is signed in; without one it is done as whom the link acts as.

    Raises NotGood, and Refused where the words are missing or too long: then the link is as good as before. Lock
    order: endpoint (as who revokes its links), link, then task or alert.
    """
    with transaction.atomic():
        Endpoint.objects.select_for_update(no_key=True).get(action_links__uid=uid)
        link = ActionLink.objects.select_for_update(of=("self",)).select_related(*RELATED).get(uid=uid)
        person = actor or link.acts_as
        now = database_now()
        found = standing_of(link, person, now, signed_in=actor is not None)
        if found is not Standing.GOOD:
            raise NotGood(found, refusal_of(link, person, found, signed_in=actor is not None))
        used_by = actor if link.action == LinkAction.CONFIRM.value else person
        changed = ActionLink.objects.filter(pk=link.pk, used_at=None, revoked_at=None, expires_at__gt=now).update(
            used_at=now, used_by=used_by, used_from=address[:64]
        )
        assert changed == 1, "the row is locked"
        said = _DO[LinkAction(link.action)](link, person, words)
        task = link.escalation.task if link.escalation is not None else None
        AuditEntry.objects.create(
            actor=used_by,
            action=f"link.{link.action}",
            workspace=task.workspace if task is not None else link.alert.workspace if link.alert is not None else None,
            task=task,
            reason=taken(words, "reason", MESSAGE_CHARS),
            data={
                "by": "link",
                "link": link.pk,
                "endpoint": link.endpoint_id,
                "endpoint_name": link.endpoint.name,
                "address": address[:64],
                "signed_in": actor is not None,
                "acts_as": link.acts_as.get_username(),
                "alert": link.alert_id,
                "escalation": link.escalation_id,
            },
            at=now,
        )
        return Used(said, used_by)


def _answer(link: ActionLink, person: User, words: str) -> str:
    assert link.escalation_id is not None
    decision = ANSWERS[LinkAction(link.action)]
    answered = answer_escalation(
        link.escalation_id, decision=decision, actor=person, words=words, seen=link.arguments_hash
    )
    if answered.status == EscalationStatus.OPEN.value:
        return "Your approval is the first of two. The call runs once a second person has approved it too."
    if decision is Decision.APPROVE:
        return "Approved. The call runs once, with exactly the arguments that you saw."
    return "Rejected. The call is not run, and the agent is told what you wrote."


def _acknowledge(link: ActionLink, person: User, words: str) -> str:
    assert link.alert_id is not None
    acknowledge_alert(link.alert_id, actor=person, reason=words, via=Via.LINK)
    return "Acknowledged: you deal with it. Nobody is reminded of it any more."


def _resolve(link: ActionLink, person: User, words: str) -> str:
    assert link.alert_id is not None
    resolve_alert(link.alert_id, actor=person, reason=words, via=Via.LINK)
    return "Resolved. It comes back when something new begins, or when it gets worse."


def _confirm(link: ActionLink, person: User, words: str) -> str:
    changed = Endpoint.objects.filter(pk=link.endpoint_id, state=EndpointState.UNCONFIRMED.value).update(
        state=EndpointState.ENABLED.value, state_reason="", state_since=database_now()
    )
    assert changed == 1, "the link was good"
    return f"Confirmed. Alerts are sent to {link.endpoint.address} from now on."


_DO: dict[LinkAction, Callable[[ActionLink, User, str], str]] = {
    LinkAction.ACKNOWLEDGE: _acknowledge,
    LinkAction.RESOLVE: _resolve,
    LinkAction.APPROVE: _answer,
    LinkAction.REJECT: _answer,
    LinkAction.CONFIRM: _confirm,
}
