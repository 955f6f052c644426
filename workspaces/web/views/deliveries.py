"""What was sent: to an endpoint, or about an alert; one message with each of its tries; and sent again by hand."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from workspaces.actions import deliveries as actions
from workspaces.domain.endpoints import EndpointState
from workspaces.models import Alert, Delivery, Endpoint
from workspaces.queries import deliveries as pages
from workspaces.queries.access import own_endpoints, visible_alerts
from workspaces.web.access import signed_in, user_of
from workspaces.web.errors import done, steering


@require_safe
@signed_in
def of_endpoint(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint = get_object_or_404(own_endpoints(user_of(request)), pk=endpoint_id)
    context = {"endpoint": endpoint, "failed": pages.failed_of(endpoint)}
    return _list(request, endpoint.deliveries.all(), context)


@require_safe
@signed_in
def of_alert(request: HttpRequest, alert_id: int) -> HttpResponse:
    user = user_of(request)
    alert: Alert = get_object_or_404(visible_alerts(user), pk=alert_id)
    context = {"alert": alert, "elsewhere": pages.elsewhere(user, alert)}
    return _list(request, pages.of_alert(user, alert), context)


def _list(request: HttpRequest, found: Any, context: dict[str, Any]) -> HttpResponse:
    filters = pages.Filters.from_query(request.GET)
    page = pages.page_of(user_of(request), found, filters)
    context |= {
        "filters": filters,
        "page": page,
        "states": pages.STATES,
        "types": pages.TYPES,
        "without_alert": filters.address(alert=None),
        "previous_address": filters.address(page=page.number - 1) if page.number > 1 else "",
        "next_address": filters.address(page=page.number + 1) if page.number < page.pages else "",
    }
    return render(request, "alerts/deliveries/index.html", context)


@require_safe
@signed_in
def show(request: HttpRequest, delivery_id: int) -> HttpResponse:
    user, delivery = user_of(request), _delivery_or_404(request, delivery_id)
    alert = pages.alert_of(user, delivery)
    context = {
        "delivery": delivery,
        "endpoint": delivery.endpoint,
        "alert": alert,
        "may_read": alert is not None or delivery.alert_id is None,
        "body": pages.shown_body(delivery.body),
        "attempts": delivery.attempts.order_by("-number"),
        "may_resend": delivery.endpoint.state == EndpointState.ENABLED.value,
    }
    return render(request, "alerts/deliveries/show.html", context)


@steering
def resend(request: HttpRequest, delivery_id: int) -> HttpResponse:
    delivery = _delivery_or_404(request, delivery_id)
    actions.resend(delivery, actor=user_of(request))
    back = reverse("alert-delivery", args=[delivery.pk])
    return done(request, "It is sent again, with the same id.", back=back, reload=True)


@steering
def resend_failed(request: HttpRequest, endpoint_id: int) -> HttpResponse:
    endpoint: Endpoint = get_object_or_404(own_endpoints(user_of(request)), pk=endpoint_id)
    count = actions.resend_failed(endpoint, actor=user_of(request))
    told = f"{count:,} message{' is' if count == 1 else 's are'} sent again, in order."
    return done(request, told, back=reverse("alert-endpoint-deliveries", args=[endpoint.pk]), reload=True)


def _delivery_or_404(request: HttpRequest, delivery_id: int) -> Delivery:
    found = pages.own_deliveries(user_of(request)).select_related("endpoint__owner")
    return get_object_or_404(found, pk=delivery_id)
