"""How the pages of rules and endpoints write what an endpoint is. Formats only."""

from __future__ import annotations

from django import template

from workspaces.domain.alert_words import KINDS as ALERT_KINDS
from workspaces.domain.alerts import AlertKind
from workspaces.models import Endpoint
from workspaces.web.endpoint_form import KINDS

register = template.Library()


@register.filter
def endpoint_kind(endpoint: Endpoint) -> str:
    """slack → "chat"."""
    return next(name.lower() for kind, name, _ in KINDS if kind.value == endpoint.kind)


@register.filter
def alert_kind(kind: str) -> str:
    """escalation_opened → "question", as the rule's form names it."""
    return ALERT_KINDS[AlertKind(kind)].name.lower()
