"""The nodes: for staff, since they are the site's and no workspace's."""

from __future__ import annotations

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from workspaces.queries.nodes import leftovers, node_rows
from workspaces.web.access import signed_in, user_of


@require_safe
@signed_in
def index(request: HttpRequest) -> HttpResponse:
    if not user_of(request).is_staff:
        raise Http404
    context = {
        "rows": node_rows(list(settings.NODES)),
        "leftovers": leftovers(),
        "lost_after_s": settings.NODE_LOST_S,
        "several": len(settings.NODES) > 1,
    }
    return render(request, "nodes/index.html", context)
