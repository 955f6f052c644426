"""Alert rules: what each does in plain words, made and changed with a preview, muted, switched off, put back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from workspaces.actions import alert_rules as actions
from workspaces.actions.errors import Refused
from workspaces.domain.rule_words import span
from workspaces.models import AlertRule
from workspaces.queries import alert_rules as pages
from workspaces.queries.access import own_rules
from workspaces.queries.database import database_now
from workspaces.web.access import signed_in, user_of
from workspaces.web.errors import done, steering
from workspaces.web.limits_form import deadline_field
from workspaces.web.rule_form import RuleForm
from workspaces.web.trace_rows import number_or_none
from workspaces.web.views.latches import reason_of

MUTES = ((3_600, "1 hour"), (4 * 3_600, "4 hours"), (24 * 3_600, "1 day"), (7 * 86_400, "7 days"))


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    context = {"groups": pages.groups_of(user_of(request)), "mutes": MUTES, "days": pages.LATELY.days}
    return render(request, "alerts/rules/index.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def new(request: HttpRequest) -> HttpResponse:
    user = user_of(request)
    form = RuleForm(user, data=request.POST if request.method == "POST" else None)
    if request.method != "POST" and user.is_staff and request.GET.get("of") == "site":
        form.initial["of"] = "site"
    if form.is_bound and form.is_valid():
        try:
            rule = actions.make_rule(
                owner=form.owner, actor=user, endpoints=form.cleaned_data["endpoints"], **form.settings
            )
            return done(request, f"{rule.name} holds from now on.", back=_in_list(rule))
        except Refused as refusal:
            form.add_error(None, str(refusal))
    return _form(request, form)


@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def change(request: HttpRequest, rule_id: int) -> HttpResponse:
    user, rule = user_of(request), _rule_or_404(request, rule_id)
    form = RuleForm(user, rule, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        endpoints = None if form.keeps_endpoints else form.cleaned_data["endpoints"]
        try:
            actions.change_rule(
                rule.pk, actor=user, reason=form.cleaned_data["reason"], endpoints=endpoints, **form.settings
            )
            return done(request, "Changed. It holds from now on.", back=_in_list(rule))
        except Refused as refusal:
            form.add_error(None, str(refusal))
    return _form(request, form)


def _form(request: HttpRequest, form: RuleForm) -> HttpResponse:
    rule = form.rule
    context: dict[str, Any] = {"form": form, "rule": rule, "caught": None}
    if rule is not None:
        (context["row"],) = pages.rows_of(user_of(request), [rule])
        if not form.is_bound:
            context["caught"] = pages.caught(rule)
    return render(request, "alerts/rules/form.html", context, status=422 if form.is_bound else 200)


@require_safe
@signed_in
def preview(request: HttpRequest) -> HttpResponse:
    """What the form, as it is filled in now, would have caught; its fields come in the query."""
    user = user_of(request)
    number = request.GET.get("rule", "")
    rule = _rule_or_404(request, int(number)) if number.isascii() and number.isdigit() and len(number) < 18 else None
    form = RuleForm(user, rule, request.GET)
    form.is_valid()
    looked_for = form.as_looked_for()
    return render(request, "alerts/rules/_preview.html", {"caught": looked_for and pages.caught(looked_for)})


@steering
def mute(request: HttpRequest, rule_id: int) -> HttpResponse:
    """For `seconds`, or until `until` (UTC)."""
    rule = _rule_or_404(request, rule_id)
    until, words = _until(request)
    actions.mute_rule(rule.pk, until=until, actor=user_of(request), reason=request.POST.get("reason", ""))
    told = f"{rule.name} is muted {words}. What it finds is kept, and nobody is told."
    alert = number_or_none(request.POST.get("alert"))  # on whose page the dialog was
    back = _in_list(rule) if alert is None else reverse("alert", args=[alert])
    return done(request, told, back=back, reload=True)


def _until(request: HttpRequest) -> tuple[datetime, str]:
    now = database_now()
    typed = request.POST.get("until", "").strip()
    if not typed:
        seconds = request.POST.get("seconds", "")
        allowed = {str(each): each for each, _ in MUTES}
        if seconds not in allowed:
            raise Refused("Choose for how long, or write until when.")
        return now + timedelta(seconds=allowed[seconds]), f"for {span(allowed[seconds])}"
    try:
        until = deadline_field().clean(typed)
    except ValidationError:
        raise Refused("Write a date and a time (UTC).") from None
    return until, f"until {until:%Y-%m-%d %H:%M} UTC"


@steering
def unmute(request: HttpRequest, rule_id: int) -> HttpResponse:
    rule = _rule_or_404(request, rule_id)
    actions.unmute_rule(rule.pk, actor=user_of(request))
    return done(request, f"{rule.name} speaks again: what is still open is told now.", back=_in_list(rule), reload=True)


@steering
def switch(request: HttpRequest, rule_id: int) -> HttpResponse:
    """On, or (with a reason) off."""
    rule = _rule_or_404(request, rule_id)
    on = request.POST.get("to") == "on"
    reason = request.POST.get("reason", "") if on else reason_of(request)
    actions.switch_rule(rule.pk, on=on, actor=user_of(request), reason=reason)
    told = "is on. It sees what happens from now on." if on else "is off."
    return done(request, f"{rule.name} {told}", back=_in_list(rule), reload=True)


@steering
def defaults(request: HttpRequest, rule_id: int) -> HttpResponse:
    rule = _rule_or_404(request, rule_id)
    actions.restore_default(rule.pk, actor=user_of(request), reason=reason_of(request))
    return done(request, f"{rule.name} is as it came.", back=_in_list(rule), reload=True)


@steering
def remove(request: HttpRequest, rule_id: int) -> HttpResponse:
    rule = _rule_or_404(request, rule_id)
    actions.retire_rule(rule.pk, actor=user_of(request), reason=reason_of(request))
    return done(request, f"{rule.name} is removed.", back=reverse("alert-rules"), reload=True)


def _rule_or_404(request: HttpRequest, rule_id: int) -> AlertRule:
    related = ("owner", "user", "workspace", "profile", "muted_by")
    found = own_rules(user_of(request)).filter(retired_at=None).select_related(*related)
    return get_object_or_404(found.prefetch_related("endpoints"), pk=rule_id)


def _in_list(rule: AlertRule) -> str:
    return f"{reverse('alert-rules')}#rule-{rule.pk}"
