"""The JSON schemas of what webhooks are told: for everybody, so that a receiver's author needs no account."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from workspaces.domain.webhooks import MessageType

NAMES = tuple(one.value for one in MessageType)


@require_safe
@cache_control(public=True, max_age=86_400)
def show(request: HttpRequest, name: str) -> HttpResponse:
    response = HttpResponse(_text(name), content_type="application/schema+json")
    response["Access-Control-Allow-Origin"] = "*"  # a validator in somebody's browser may read it
    return response


@cache
def _text(name: str) -> bytes:
    return (files("workspaces.domain") / "schemas" / f"{name}.json").read_bytes()
