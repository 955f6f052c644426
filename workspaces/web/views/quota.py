"""The quota pages: every pool that a person may know of, one of them, its charts; and what site staff set."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions import quota_settings as actions
from workspaces.actions.errors import Refused
from workspaces.models import QuotaPool
from workspaces.queries.database import database_now
from workspaces.queries.quota_history import history_of
from workspaces.queries.quota_pools import pool_sources, pools_for
from workspaces.queries.quota_state import Situation
from workspaces.web.access import pool_or_404, require_staff, signed_in, user_of
from workspaces.web.errors import done, steering
from workspaces.web.quota_charts import CHARTS, figure
from workspaces.web.quota_form import NewPoolForm, PoolForm, WeightForm, typed_of
from workspaces.web.quota_parts import card_context, page_context, period_of, weights_context
from workspaces.web.trace_rows import number_or_none


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    cards = [card_context(row, user) for row in pools_for(user, database_now())]
    return render(request, "quota/index.html", {"cards": cards, "is_staff": user.is_staff})


@require_safe
@signed_in
def show(request: HttpRequest, pool_id: int) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    before = number_or_none(request.GET.get("before"))
    context = page_context(pool, user_of(request), database_now(), period_of(request.GET.get("period")), before)
    return render(request, "quota/show.html", context | {"charts": list(CHARTS.items())})


@require_safe
@signed_in
def history(request: HttpRequest, pool_id: int, chart: str) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    if chart not in CHARTS:
        raise Http404
    now = database_now()
    made = figure(chart, history_of(pool, period_of(request.GET.get("period")), now), Situation.of(pool, now).meters)
    return JsonResponse(made)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    require_staff(request)
    sources = pool_sources()
    form = NewPoolForm(sources, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        try:
            pool = actions.make_pool(version=form.cleaned_data["source"], **form.settings, actor=user_of(request))
            return redirect("quota-pool", pool.pk)
        except Refused as refusal:
            form.add_error(None, str(refusal))
    context = {"form": form, "sources": list(sources.items()), "chosen": str(form["source"].value() or "")}
    return render(request, "quota/new.html", context, status=422 if form.is_bound else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def settings(request: HttpRequest, pool_id: int) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    require_staff(request)
    if request.method != "POST":
        return _settings(request, pool, PoolForm(initial=typed_of(pool)), WeightForm())
    form = PoolForm(request.POST)
    if form.is_valid():
        try:
            actions.change_pool(pool.pk, **form.settings, actor=user_of(request))
            return done(request, "Changed. It holds from the next call on.", back=reverse("quota-pool", args=[pool.pk]))
        except Refused as refusal:
            form.add_error(None, str(refusal))
    return _settings(request, pool, form, WeightForm(), status=422)


@require_http_methods(["POST"])
@signed_in
def weight(request: HttpRequest, pool_id: int) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    require_staff(request)
    form = WeightForm(request.POST)
    if form.is_valid():
        read = form.cleaned_data
        try:
            actions.set_weight(
                pool.pk,
                user=read["user"],
                weight=read["weight"],
                reason=read["weight_reason"],
                actor=user_of(request),
            )
            told = f"{read['user']} has the weight {read['weight']:g} now."
            return done(request, told, back=reverse("quota-settings", args=[pool.pk]))
        except Refused as refusal:
            form.add_error(None, str(refusal))
    return _settings(request, pool, PoolForm(initial=typed_of(pool)), form, status=422)


def _settings(
    request: HttpRequest, pool: QuotaPool, form: PoolForm, weight_form: WeightForm, *, status: int = 200
) -> HttpResponse:
    context: dict[str, Any] = {"pool": pool, "form": form, "weight_form": weight_form, **weights_context(pool)}
    return render(request, "quota/settings.html", context, status=status)


@steering
def probe(request: HttpRequest, pool_id: int) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    require_staff(request)
    actions.probe_pool(pool.pk, reason=request.POST.get("reason", ""), actor=user_of(request))
    return done(request, "The wait is over: the next call goes out.", back=reverse("quota-pool", args=[pool.pk]))


@steering
def retire(request: HttpRequest, pool_id: int) -> HttpResponse:
    pool = pool_or_404(request, pool_id)
    require_staff(request)
    actions.retire_pool(pool.pk, reason=request.POST.get("reason", ""), actor=user_of(request))
    return done(request, "Retired. What waited in it asks again.", back=reverse("quota"), reload=True)
