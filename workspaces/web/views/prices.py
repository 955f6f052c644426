"""The page of prices: for site staff, since they are the site's and no workspace's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal, InvalidOperation

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_http_methods

from workspaces.actions.errors import Refused
from workspaces.actions.prices import MOST_USD, set_prices, withdraw_prices
from workspaces.domain import prices
from workspaces.domain.prices import Unit
from workspaces.queries.price_page import page_context
from workspaces.web.access import signed_in, user_of


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    if not user_of(request).is_staff:
        raise Http404
    if request.method != "POST":
        return render(request, "prices/index.html", page_context())
    form = request.POST.get("form", "")
    try:
        told = FORMS.get(form, _unknown)(request)
    except Refused as refusal:
        kept = {"error": str(refusal), "refused": form, "typed": request.POST.dict()}
        return render(request, "prices/index.html", page_context() | kept, status=422)
    messages.success(request, told)
    return redirect("prices")


def _of_model(request: HttpRequest) -> str:
    subject = request.POST.get("subject", "").strip()
    if subject.lower() in prices.UNITS_OF:
        raise Refused(f"“{subject}” is no model here; its prices are in the form beside this one.")
    _set(request, subject, prices.TOKEN_UNITS)
    return f"The site's price of {subject} is set."


def _of_resources(request: HttpRequest) -> str:
    with transaction.atomic():  # all of the form or nothing
        for subject, units in prices.UNITS_OF.items():
            if any(request.POST.get(unit.value, "").strip() for unit in units):
                _set(request, subject, units)
    if not any(request.POST.get(unit.value, "").strip() for units in prices.UNITS_OF.values() for unit in units):
        raise Refused("Give at least one price.")
    return "The site's price of sandboxes and storage is set."


def _withdrawn(request: HttpRequest) -> str:
    subject = request.POST.get("subject", "")
    withdraw_prices(subject, reason=request.POST.get("reason", ""), actor=user_of(request))
    return f"The site has no price of its own for {subject} any more."


def _unknown(request: HttpRequest) -> str:
    raise Refused("That form is not known here. Reload the page.")


FORMS: dict[str, Callable[[HttpRequest], str]] = {
    "model": _of_model,
    "resources": _of_resources,
    "withdraw": _withdrawn,
}


def _set(request: HttpRequest, subject: str, units: tuple[Unit, ...]) -> None:
    given = {unit: _usd(text) for unit in units if (text := request.POST.get(unit.value, "").strip())}
    set_prices(
        subject,
        given,
        reason=request.POST.get("reason", ""),
        actor=user_of(request),
        valid_from=_moment(request.POST.get("valid_from", "").strip()),
    )


def _usd(text: str) -> Decimal:
    try:
        usd = Decimal(text[:40])
    except InvalidOperation:
        raise Refused(f"{text[:40]} is no amount in USD. Write it like 2.50.") from None
    if usd.is_finite() and -MOST_USD <= usd <= MOST_USD and usd != round(usd, 9):
        raise Refused("A price has at most nine places.")
    return usd


def _moment(text: str) -> datetime | None:
    """UTC, as the page says."""
    if not text:
        return None
    try:
        found = parse_datetime(text)
    except ValueError:
        found = None
    if found is None:
        raise Refused("The date it counts from cannot be read. Leave it empty for now.")
    return found if timezone.is_aware(found) else found.replace(tzinfo=timezone.get_fixed_timezone(0))
