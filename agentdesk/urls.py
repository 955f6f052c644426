"""The site's addresses: health, the admin, and the product's own pages."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from agentdesk import health

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("admin/login/", RedirectView.as_view(pattern_name="sign-in", query_string=True)),  # one door, one throttle
    path("admin/", admin.site.urls),
    path("", include("workspaces.web.urls")),
]

handler400 = "workspaces.web.errors.unreadable"
handler403 = "workspaces.web.errors.forbidden"
handler404 = "workspaces.web.errors.not_found"
handler500 = "workspaces.web.errors.broken"
