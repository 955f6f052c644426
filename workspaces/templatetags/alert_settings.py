"""How the pages of rules and endpoints write what an endpoint is. Formats only."""

from __future__ import annotations

from django import template

from workspaces.models import Endpoint
from workspaces.web.endpoint_form import KINDS

register = template.Library()


@register.filter
def endpoint_kind(endpoint: Endpoint) -> str:
    """slack → "chat"."""
    return next(name.lower() for kind, name, _ in KINDS if kind.value == endpoint.kind)
