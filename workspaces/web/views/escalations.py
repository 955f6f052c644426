"""The inbox and the answers to escalations. Decides nothing itself: domain/escalations.py and its action do."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from workspaces.actions.errors import Refused
from workspaces.actions.escalations import answer_escalation
from workspaces.domain.escalations import Decision
from workspaces.domain.roles import Role
from workspaces.domain.text import too_deep
from workspaces.queries.budget_pages import alerts
from workspaces.queries.escalations import Typed, card_of, closed_cards, open_cards
from workspaces.web.access import escalation_or_404, is_htmx, require_role, signed_in, user_of
from workspaces.web.errors import steering


@require_safe
@signed_in
def inbox(request: HttpRequest) -> HttpResponse:
    if request.GET.get("tab") == "closed":
        text = request.GET.get("page", "1")
        page = int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 6 else 1
        page = max(1, page)
        cards, more = closed_cards(user_of(request), page)
        context = {
            "tab": "closed",
            "cards": cards,
            "page": page,
            "more": more,
            "previous_page": page - 1,
            "next_page": page + 1,
        }
        return render(request, "escalations/inbox.html", context)
    user = user_of(request)
    template = "escalations/_list.html" if is_htmx(request) else "escalations/inbox.html"
    return render(request, template, {"tab": "open", "cards": open_cards(user), "alerts": alerts(user)})


@steering
def answer(request: HttpRequest, escalation_id: int) -> HttpResponse:
    """The card again: answered, or open with the reason why not and what was typed."""
    escalation = escalation_or_404(request, escalation_id)
    require_role(request, escalation.task.workspace, Role.OPERATOR)
    typed = Typed(
        decision=request.POST.get("decision", ""),
        words=request.POST.get("words", ""),
        arguments=request.POST.get("arguments", ""),
        extra_steps=request.POST.get("extra_steps", ""),
        extra_minutes=request.POST.get("extra_minutes", ""),
    )
    error = ""
    try:
        answer_escalation(escalation.pk, actor=user_of(request), seen=request.POST.get("seen", ""), **_parsed(typed))
    except Refused as refusal:
        error = str(refusal)
    escalation = escalation_or_404(request, escalation_id)
    if not is_htmx(request) and not error:
        return redirect("task", escalation.task_id)
    card = card_of(request.user, escalation, typed=typed if error else None, error=error)
    response = render(request, "escalations/_card.html", {"card": card}, status=409 if error else 200)
    if error:
        response["HX-Retarget"] = f"#escalation-{escalation.pk}"
        response["HX-Reswap"] = "outerHTML"
    return response


def _parsed(typed: Typed) -> dict[str, Any]:
    """The action's arguments. Raises Refused for what cannot be read."""
    try:
        decision = Decision(typed.decision)
    except ValueError:
        raise Refused("Choose one of the answers.") from None
    parsed: dict[str, Any] = {"decision": decision, "words": typed.words}
    if decision is Decision.EDIT:
        parsed["arguments"] = _arguments(typed.arguments)
    if decision is Decision.RAISE:
        if not (typed.extra_steps.isascii() and typed.extra_steps.isdigit() and len(typed.extra_steps) < 9):
            raise Refused("Say by how many steps to raise the limit, as a whole number.")
        parsed["extra_steps"] = int(typed.extra_steps)
    if decision is Decision.EXTEND:
        if not (typed.extra_minutes.isascii() and typed.extra_minutes.isdigit() and len(typed.extra_minutes) < 9):
            raise Refused("Say how much more time to give, in whole minutes.")
        parsed["extra_minutes"] = int(typed.extra_minutes)
    return parsed


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Refused(
            f"The arguments are not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"The arguments are not JSON: {error}.") from None
    if too_deep(arguments):
        raise Refused("The arguments are nested too deeply.")
    if not isinstance(arguments, dict):
        raise Refused("The arguments have to be one JSON object: { … }.")
    return arguments


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
