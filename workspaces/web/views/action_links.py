"""The pages of links that act: a GET shows what a link would do and changes nothing, a POST does it once.

Nobody has to be signed in: the token is the leave to act, as one person. Who is signed in acts as themselves, and only
by a form of our own page (CSRF). A machine asks for JSON: it acts as the link's person, whatever cookies came along.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from workspaces.actions.errors import Refused
from workspaces.actions.link_use import NotGood, use_link
from workspaces.actions.signin import guessed_a_link, links_wait_until
from workspaces.domain.action_links import STATUS
from workspaces.models import ActionLink, User
from workspaces.queries.action_links import link_of
from workspaces.queries.database import database_now
from workspaces.queries.link_page import link_page
from workspaces.web.access import user_of

NOWHERE = "There is no such link. It may have been cut off where it was copied: open it from the message itself."
JSON_BYTES = 1_000_000
# Not `no-referrer`: a form's POST would then come from the origin "null", which CSRF has to refuse. A page's own
# address, which holds the token, is told to nobody by either.
HEADERS = {
    "Cache-Control": "no-store, private",
    "Referrer-Policy": "strict-origin",
    "X-Robots-Tag": "noindex, nofollow",
    "Vary": "Accept, Cookie",
}


@csrf_exempt  # for machines; `_page` has it
@sensitive_variables("token")
@require_http_methods(["GET", "HEAD", "POST"])
def act(request: HttpRequest, token: str) -> HttpResponse:
    response = _for_machines(request, token) if _wants_json(request) else _page(request, token)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


@csrf_protect
@sensitive_variables("token")
def _page(request: HttpRequest, token: str) -> HttpResponse:
    if until := links_wait_until(_address(request)):
        wait = _wait_s(until)
        told = f"Too many links were tried from here. Wait {wait} s, then open it again."
        response = render(request, "links/nothing.html", {"heading": "Wait a moment", "text": told}, status=429)
        response.headers["Retry-After"] = str(wait)
        return response
    link = _found(request, token)
    if link is None:
        return render(request, "links/nothing.html", {"heading": "No such link", "text": NOWHERE}, status=404)
    user = user_of(request) if request.user.is_authenticated else None
    if request.method != "POST":
        return _shown(request, link, user)
    words = request.POST.get("words", "")
    try:
        used = use_link(link.uid, actor=user, address=_address(request), words=words)
    except NotGood:
        return _shown(request, link_of(token) or link, user)
    except Refused as refusal:
        return _shown(request, link, user, error=str(refusal), typed=words, status=409)
    return render(request, "links/done.html", {"link": link, "said": used.words, "person": used.person})


def _shown(
    request: HttpRequest, link: ActionLink, user: User | None, *, error: str = "", typed: str = "", status: int = 0
) -> HttpResponse:
    shown = link_page(link, user, database_now())
    context = {"page": shown, "error": error, "typed": typed}
    return render(request, "links/show.html", context, status=status or shown.status)


@sensitive_variables("token")
def _for_machines(request: HttpRequest, token: str) -> HttpResponse:
    """The session is not looked at: a page elsewhere could send a user's cookies along with a token of its own."""
    if until := links_wait_until(_address(request)):
        wait = _wait_s(until)
        return JsonResponse(
            {"said": f"Too many links were tried from here. Wait {wait} s."},
            status=429,
            headers={"Retry-After": str(wait)},
        )
    link = _found(request, token)
    if link is None:
        return JsonResponse({"said": NOWHERE}, status=404)
    if request.method != "POST":
        shown = link_page(link, None, database_now())
        return JsonResponse(shown.as_json(), status=shown.status)
    try:
        used = use_link(link.uid, actor=None, address=_address(request), words=_words(request))
    except NotGood as refusal:
        told = {"done": False, "standing": refusal.standing.value, "said": str(refusal)}
        return JsonResponse(told, status=STATUS[refusal.standing])
    except Refused as refusal:
        return JsonResponse({"done": False, "standing": "good", "said": str(refusal)}, status=409)
    return JsonResponse({"done": True, "said": used.words})


def _words(request: HttpRequest) -> str:
    """Of a form, or of a JSON object. Raises Refused."""
    if request.content_type != "application/json":
        return request.POST.get("words", "")
    if len(request.body) > JSON_BYTES:
        raise Refused("The body is too large.")
    try:
        body: Any = json.loads(request.body or b"{}")
    except (ValueError, RecursionError):
        raise Refused("The body is not JSON.") from None
    words = body.get("words", "") if isinstance(body, dict) else None
    if not isinstance(words, str):
        raise Refused('The body has to be a JSON object: {"words": "…"}.')
    return words


@sensitive_variables("token")
def _found(request: HttpRequest, token: str) -> ActionLink | None:
    link = link_of(token)
    if link is None:
        guessed_a_link(_address(request))
    return link


def _wants_json(request: HttpRequest) -> bool:
    accepted = request.headers.get("Accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _address(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))


def _wait_s(until: datetime) -> int:
    return max(1, math.ceil((until - database_now()).total_seconds()))
