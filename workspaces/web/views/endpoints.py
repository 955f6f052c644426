"""Endpoints: where alerts go and whether they arrive; made, tried, given new secrets, switched off and removed.

A signing secret is shown once, on the page that follows its making; until then it lies sealed in the session.
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions import deliveries as sending
from workspaces.actions import endpoints as actions
from workspaces.actions.endpoint_addresses import check_reachable, read_address
from workspaces.actions.errors import Refused
from workspaces.domain.endpoints import DeliveryState, EndpointKind, EndpointLinks, EndpointState
from workspaces.engine.mail import send_confirmation
from workspaces.models import Delivery, Endpoint, User
from workspaces.models.profiles import open_sealed, seal
from workspaces.queries import deliveries, endpoints
from workspaces.queries.access import own_endpoints
from workspaces.queries.database import database_now
from workspaces.queries.mail import why_no_mail
from workspaces.web.access import is_htmx, signed_in, user_of
from workspaces.web.endpoint_form import EndpointForm, links_words
from workspaces.web.errors import done, steering
from workspaces.web.views.latches import reason_of

OVERLAPS = ((24 * 3600, "24 hours"), (3600, "1 hour"), (7 * 24 * 3600, "7 days"), (0, "not at all: it ends now"))
NEWEST_SHOWN = 8
KEPT = "endpoint_secret"


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    context = {"groups": endpoints.groups_of(user), "removed": endpoints.removed_of(user)}
    return render(request, "alerts/endpoints/index.html", context)


@require_safe
@signed_in
def show(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    user, endpoint = user_of(request), _endpoint_or_404(request, endpoint_id)
    context: dict[str, Any] = {
        **_facts_context(user, endpoint),
        "secrets": endpoints.secrets_of(endpoint),
        "fresh_secret": _taken_secret(request, endpoint),
        "overlaps": OVERLAPS,
        "asked": endpoints.asked_to_confirm(endpoint),
        **_test_context(endpoint, endpoints.newest_test(endpoint)),
    }
    return render(request, "alerts/endpoints/show.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    form = EndpointForm(user, data=request.POST if request.method == "POST" else None)
    if not form.is_bound and user.is_staff and request.GET.get("of") == "site":
        form.initial["of"] = "site"
    if form.is_bound and form.is_valid():
        try:
            _check_address(form.chosen_kind, form.cleaned_data["address"])
            endpoint, secret = actions.make_endpoint(
                kind=form.chosen_kind,
                name=form.cleaned_data["name"],
                address=form.cleaned_data["address"],
                owner=form.owner,
                actor=user,
                links=EndpointLinks(form.cleaned_data["links"]),
            )
            _keep_secret(request, endpoint, secret)
            _ask_to_confirm(request, endpoint)
            return redirect("alert-endpoint", endpoint.pk)
        except Refused as refusal:
            form.add_error("address", str(refusal))
    return render(request, "alerts/endpoints/form.html", {"form": form}, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    form = EndpointForm(user_of(request), endpoint, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        address = form.cleaned_data["address"]
        try:
            if address and address.strip() != endpoint.address:
                _check_address(form.chosen_kind, address)
            changed = actions.change_endpoint(
                endpoint.pk,
                actor=user_of(request),
                name=form.cleaned_data["name"],
                links=EndpointLinks(form.cleaned_data["links"]),
                address=address,
            )
            if changed.address != endpoint.address:
                _ask_to_confirm(request, changed)
            return done(request, "Changed. It holds from the next message on.", back=_page(endpoint))
        except Refused as refusal:
            form.add_error("address", str(refusal))
    context = {"form": form, "endpoint": endpoint}
    return render(request, "alerts/endpoints/form.html", context, status=422 if form.is_bound else 200)


def _check_address(kind: EndpointKind, typed: str) -> None:
    """Raises Refused. Resolves the name, so that what could never be sent to is told while somebody looks."""
    address = read_address(kind, typed)
    if kind is not EndpointKind.EMAIL:
        check_reachable(address)
    elif problem := why_no_mail():
        raise Refused(problem)


def _ask_to_confirm(request: HttpRequest, endpoint: Endpoint) -> None:
    """A mailbox's owner has to say yes. Where the link cannot be sent, the page says why and offers it again."""
    if endpoint.state != EndpointState.UNCONFIRMED.value:
        return
    try:
        send_confirmation(endpoint.pk, actor=user_of(request))
    except Refused as refusal:
        messages.error(request, str(refusal))


@steering
def confirm_again(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    address = send_confirmation(endpoint.pk, actor=user_of(request))
    return done(request, f"A new link is on its way to {address}.", back=_page(endpoint), reload=True)


@steering
def rotate(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    allowed = {str(seconds): seconds for seconds, _ in OVERLAPS}
    if request.POST.get("overlap") not in allowed:
        raise Refused("Choose how long the old secret stays valid.")
    overlap_s = allowed[request.POST["overlap"]]
    secret = actions.rotate_secret(endpoint.pk, actor=user_of(request), overlap_s=overlap_s)
    _keep_secret(request, endpoint, secret)
    return done(request, "There is a new secret. It is shown this once.", back=_page(endpoint), reload=True)


@steering
def drop_old_secret(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    actions.drop_old_secret(endpoint.pk, actor=user_of(request), reason=reason_of(request))
    return done(request, "The old secret has ended.", back=_page(endpoint), reload=True)


@steering
def test(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    delivery = sending.send_test(endpoint, actor=user_of(request))
    if not is_htmx(request):
        return redirect(f"{_page(endpoint)}#endpoint-test")
    return render(request, "alerts/endpoints/_test.html", _test_context(endpoint, delivery))


@require_safe
@signed_in
def test_result(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    """How the newest test stands: the page asks again until that is settled."""
    endpoint = _endpoint_or_404(request, endpoint_id)
    context = _test_context(endpoint, endpoints.newest_test(endpoint))
    if context["test_goes_on"]:
        return render(request, "alerts/endpoints/_test.html", context)
    return render(request, "alerts/endpoints/_tested.html", context | _facts_context(user_of(request), endpoint))


@steering
def enable(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    actions.enable_endpoint(endpoint.pk, actor=user_of(request), reason=request.POST.get("reason", ""))
    told = "It is on. What was given up meanwhile is sent again from the list of deliveries."
    return done(request, told, back=_page(endpoint), reload=True)


@steering
def disable(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    actions.disable_endpoint(endpoint.pk, actor=user_of(request), reason=reason_of(request))
    return done(request, "It is off: nothing is sent there.", back=_page(endpoint), reload=True)


@steering
def remove(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = _endpoint_or_404(request, endpoint_id, removed=False)
    actions.remove_endpoint(endpoint.pk, actor=user_of(request), reason=reason_of(request))
    return done(request, f"{endpoint.name} is removed.", back=reverse("alert-endpoints"), reload=True)


def _endpoint_or_404(request: HttpRequest, endpoint_id: int, *, removed: bool = True) -> Endpoint:
    found = own_endpoints(user_of(request)).select_related("owner", "created_by")
    if not removed:
        found = found.exclude(state=EndpointState.REMOVED.value)
    return get_object_or_404(found, pk=endpoint_id)


def _page(endpoint: Endpoint) -> str:
    return reverse("alert-endpoint", args=[endpoint.pk])


def _facts_context(user: User, endpoint: Endpoint) -> dict[str, Any]:
    """What a message that was sent changes on the page."""
    (row,) = endpoints.rows_of([endpoint])
    return {
        "endpoint": endpoint,
        "row": row,
        "links": links_words(endpoint.links),
        "rules": endpoint.rules.filter(retired_at=None).order_by("name"),
        "newest": deliveries.page_of(user, endpoint.deliveries.all(), deliveries.Filters()).rows[:NEWEST_SHOWN],
    }


def _test_context(endpoint: Endpoint, delivery: Delivery | None) -> dict[str, Any]:
    attempt = delivery.attempts.order_by("-number").first() if delivery is not None else None
    return {
        "endpoint": endpoint,
        "test": delivery,
        "attempt": attempt,
        "test_goes_on": delivery is not None and delivery.state == DeliveryState.PENDING.value,
        "now": database_now(),
    }


def _keep_secret(request: HttpRequest, endpoint: Endpoint, secret: str) -> None:
    if secret:
        request.session[KEPT] = {"endpoint": endpoint.pk, "sealed": seal(secret).decode("ascii")}


def _taken_secret(request: HttpRequest, endpoint: Endpoint) -> str:
    """Once: whoever loads the page again finds it gone. Who asks for its head alone has not seen it."""
    kept = None if request.method == "HEAD" else request.session.get(KEPT)
    if not isinstance(kept, dict) or kept.get("endpoint") != endpoint.pk:
        return ""
    del request.session[KEPT]
    return open_sealed(str(kept["sealed"]).encode("ascii"))
