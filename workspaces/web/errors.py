"""How the desk says no: refusals and errors, in words, as a page or as a notice for htmx. Never a traceback."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied, RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.defaultfilters import filesizeformat
from django.template.loader import render_to_string
from django.views.decorators.http import require_POST

from workspaces.actions.errors import Refused
from workspaces.queries.database import is_away

from .access import View, is_htmx, signed_in

TITLES = {
    400: "That cannot be read",
    403: "You may not do that",
    404: "There is nothing here",
    409: "That is not possible now",
    413: "That is too large",
}
BROKEN = (
    "Something broke",
    "The server failed to answer. What you sent was done as a whole or not at all: look before you send it again. "
    "Tasks go on in their workers. The log has the details.",
)
AWAY = (
    "The database does not answer",
    "Try again in a moment. What you sent was done as a whole or not at all: look before you send it again. "
    "Nothing that was kept is lost, and tasks go on when the database is back.",
)
AGAIN_S = 5


def notice(request: HttpRequest, text: str, *, level: str = "error", status: int = 409) -> HttpResponse:
    """The alert region's content; app.js swaps it in whatever the status is."""
    response = render(request, "_notice.html", {"text": text, "level": level}, status=status)
    response["HX-Retarget"] = "#notice"
    response["HX-Reswap"] = "innerHTML"
    return response


def problem(request: HttpRequest, status: int, text: str) -> HttpResponse:
    """`text` as a notice for htmx, as a page for everything else."""
    if is_htmx(request):
        return notice(request, text, status=status)
    return render(
        request, "errors/problem.html", {"status": status, "heading": TITLES[status], "text": text}, status=status
    )


def done(request: HttpRequest, text: str, *, back: str, reload: bool = False) -> HttpResponse:
    """It worked: a notice for htmx (the page itself is updated by its socket), else back to `back` with it.

    `reload`: the page has no socket that would update it, so htmx goes to `back` too. (Its form is sent by htmx for
    the sake of a refusal, which leaves the page and what was typed as they are.)
    """
    if is_htmx(request) and not reload:
        return notice(request, text, level="success", status=200)
    if is_htmx(request):
        messages.success(request, text)
        response = HttpResponse(status=204)
        if _only_another_place(request, back):
            response["HX-Refresh"] = "true"
        else:
            response["HX-Redirect"] = back
        return response
    messages.success(request, text)
    return redirect(back)


def _only_another_place(request: HttpRequest, back: str) -> bool:
    """`back` is a place on the page that htmx speaks for: a browser that is sent there loads nothing."""
    try:
        here, there = urlsplit(request.headers.get("HX-Current-URL", "")), urlsplit(back)
    except ValueError:
        return False
    return bool(there.fragment) and (here.path, here.query) == (there.path, there.query)


def steering(view: View) -> View:
    """A view that changes something: POST only, signed in; Refused and PermissionDenied are answered in words."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Refused as refusal:
            return problem(request, 409, str(refusal))
        except PermissionDenied as refusal:
            return problem(request, 403, str(refusal))

    return signed_in(require_POST(wrapped))


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 403, str(exception or "") or "Your role here does not include that.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return problem(request, 404, "It does not exist, or you are not a member of its workspace.")


def unreadable(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """A form that is too large or none at all, or an address that is not ours; perhaps before anybody is signed in."""
    status, text = 400, "The request cannot be read. Reload the page and try again."
    if isinstance(exception, RequestDataTooBig):
        status = 413
        limit = filesizeformat(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        text = f"The form holds more than {limit} of text. Go back, and put long material into an attached file."
    elif isinstance(exception, TooManyFieldsSent | TooManyFilesSent):
        status, text = 413, "The form has too many fields or files. Go back, and attach an archive instead."
    if not hasattr(request, "user"):
        request.user = AnonymousUser()
    return problem(request, status, text)


def broken(request: HttpRequest) -> HttpResponse:
    """503 when the database is away, else 500. Rendered without database and session: they may be what broke.

    Django calls this while the error is being handled.
    """
    away = is_away(sys.exc_info()[1])
    heading, text = AWAY if away else BROKEN
    if is_htmx(request):
        response = HttpResponse(render_to_string("_notice.html", {"text": f"{heading}. {text}", "level": "error"}))
        response["HX-Retarget"] = "#notice"
        response["HX-Reswap"] = "innerHTML"
    else:
        response = HttpResponse(render_to_string("500.html", {"heading": heading, "text": text}))
    response.status_code = 503 if away else 500
    if away:
        response["Retry-After"] = str(AGAIN_S)
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return problem(
        request, 403, "This page is too old to act from, or its cookies are blocked. Reload it and try again."
    )
