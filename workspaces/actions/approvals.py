"""Leave to run a held call: given by one person or two, once or standing. Never runs anything.

Leave is for exact arguments (their hash), is spent by the start of the call (calls.py), and expires.
"""

from __future__ import annotations

from datetime import timedelta

from workspaces.domain.effects import canonical_json
from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.policy import Approver
from workspaces.domain.text import clip
from workspaces.models import Approval, Escalation, StandingApproval, ToolCall, User
from workspaces.queries.access import may_operate
from workspaces.queries.approvals import is_owner, standing_in_force

from .errors import Refused
from .pen import Pen, writing
from .words import taken


def may_approve(pen: Pen, escalation: Escalation, call: ToolCall) -> bool:
    """Whether this person's approval is enough now; if not, it is the first of two. Raises Refused.

    `call` is as it would run, `escalation.approver` the one that its arguments need.
    """
    actor = pen.actor
    assert actor is not None
    if escalation.approver == Approver.OWNER.value:
        if not is_owner(actor, escalation):
            raise Refused(
                "Only an owner of this workspace may approve this call. You can reject it, or answer in its place."
            )
        return True
    if escalation.approver != Approver.TWO_PERSONS.value:
        return True
    first = escalation.first_approved_by
    if first is None or escalation.first_hash != call.arguments_hash or not _still_may(first, escalation):
        return False
    if first.pk == actor.pk:
        raise Refused("You have approved this call already. It needs a second person.")
    if escalation.raised_at is not None and not (is_owner(actor, escalation) or is_owner(first, escalation)):
        raise Refused("Nobody had answered in time, so one of the two has to be an owner of this workspace.")
    return True


def record_first(pen: Pen, escalation: Escalation, call: ToolCall, *, diff: str, words: str) -> None:
    """The first of two persons has approved these arguments. The question stays open."""
    escalation.first_approved_by = pen.actor
    escalation.first_approved_at = pen.now
    escalation.first_hash = call.arguments_hash
    escalation.save(update_fields=["first_approved_by", "first_approved_at", "first_hash"])
    pen.event(
        EventKind.ESCALATION_APPROVED_ONCE,
        step=call.step.number,
        escalation=escalation.pk,
        tool_call=call.pk,
        name=call.name,
        arguments=clip(canonical_json(call.arguments), EXCERPT_CHARS),
        edited=bool(diff),
        **({"diff": diff} if diff else {}),
    )
    pen.audit("escalation.approved_once", reason=words, escalation=escalation.pk, edited=bool(diff))


def grant(pen: Pen, escalation: Escalation, call: ToolCall) -> None:
    """Leave to run the call once, instead of any that was not used."""
    assert pen.actor is not None
    two = escalation.approver == Approver.TWO_PERSONS.value
    expires = escalation.expires_s or pen.task.profile_version.approval_expires_s
    Approval.objects.filter(tool_call=call, used_at=None).update(used_at=pen.now)
    Approval.objects.create(
        tool_call=call,
        arguments_hash=call.arguments_hash,
        given_by=pen.actor,
        also_by=escalation.first_approved_by if two else None,
        given_at=pen.now,
        expires_at=pen.now + timedelta(seconds=expires),
    )


def allow_always(pen: Pen, call: ToolCall, reason: str) -> StandingApproval:
    """From now on this exact call runs in this task without being asked about. Raises Refused."""
    assert pen.actor is not None
    already = standing_in_force(pen.task, pen.branch).filter(arguments_hash=call.arguments_hash).first()
    if already is not None:
        return already
    seq = pen.event(
        EventKind.APPROVAL_STANDING,
        step=call.step.number,
        tool_call=call.pk,
        name=call.name,
        effect=call.effect,
        arguments=clip(canonical_json(call.arguments), EXCERPT_CHARS),
        reason=clip(reason, EXCERPT_CHARS),
    )
    standing = StandingApproval.objects.create(
        task=pen.task,
        branch_id=pen.task.current_branch_id,
        seq=seq,
        name=call.name,
        arguments=call.arguments,
        arguments_hash=call.arguments_hash,
        effect=call.effect,
        reason=reason,
        given_by=pen.actor,
        given_at=pen.now,
    )
    pen.audit("approval.standing", reason=reason, standing=standing.pk, name=call.name)
    return standing


def use_standing(pen: Pen, call: ToolCall) -> StandingApproval | None:
    """Leave for the call from a standing approval of exactly its arguments, if one is in force on this line."""
    if not call.arguments_hash:
        return None
    standing = standing_in_force(pen.task, pen.branch).filter(arguments_hash=call.arguments_hash).first()
    if standing is None:
        return None
    Approval.objects.filter(tool_call=call, used_at=None).update(used_at=pen.now)
    Approval.objects.create(
        tool_call=call,
        arguments_hash=call.arguments_hash,
        given_by=standing.given_by,
        standing=standing,
        given_at=pen.now,
        expires_at=pen.now + timedelta(seconds=pen.task.profile_version.approval_expires_s),
    )
    return standing


def revoke_standing(standing_id: int, *, reason: str, actor: User) -> StandingApproval:
    """It is asked about again from now on; leave that was made from it and not used is void. Raises Refused."""
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why you revoke it: the reason is kept in the audit log.")
    task_id = StandingApproval.objects.values_list("task_id", flat=True).get(pk=standing_id)
    with writing(task_id, actor=actor) as pen:
        changed = StandingApproval.objects.filter(pk=standing_id, revoked_at=None).update(
            revoked_by=actor, revoked_at=pen.now, revoke_reason=reason
        )
        if changed != 1:
            raise Refused("Somebody has revoked this already.")
        Approval.objects.filter(standing_id=standing_id, used_at=None).update(used_at=pen.now)
        standing = StandingApproval.objects.get(pk=standing_id)
        pen.event(
            EventKind.APPROVAL_REVOKED, standing=standing_id, name=standing.name, reason=clip(reason, EXCERPT_CHARS)
        )
        pen.audit("approval.revoke", reason=reason, standing=standing_id, name=standing.name)
        return standing


def _still_may(person: User, escalation: Escalation) -> bool:
    return may_operate(person, escalation.task.workspace)
