"""Which view answers which address of the desk. A file of views a noun."""

from __future__ import annotations

from django.contrib.auth import views as auth_views
from django.urls import include, path, re_path

from .sign_in import SignIn
from .views import (
    audit,
    escalations,
    fleet,
    incidents,
    isolation,
    latches,
    new_task,
    nodes,
    patterns,
    policies,
    profiles,
    sleep,
    terminal,
    tool_servers,
    workspaces,
)

urlpatterns = [
    path("", fleet.show, name="fleet"),
    path("fleet/act/", fleet.act, name="fleet-act"),
    path("sign-in/", SignIn.as_view(), name="sign-in"),
    path("sign-out/", auth_views.LogoutView.as_view(), name="sign-out"),
    path("inbox/", escalations.inbox, name="inbox"),
    path("escalations/<int:escalation_id>/answer/", escalations.answer, name="escalation-answer"),
    path("incidents/", incidents.index, name="incidents"),
    path("incidents/recurrence/", patterns.recurring, name="incidents-recurrence"),
    path("incidents/recurrence.json", patterns.recurring_figure, name="incidents-recurrence-figure"),
    path("incidents/compounding/", patterns.compounded, name="incidents-compounding"),
    re_path("^incidents/compounding/(?P<by>steps|agents).json$", patterns.compounded_figure),
    path("incidents/<int:incident_id>/", incidents.show, name="incident"),
    path("incidents/<int:incident_id>/acknowledge/", incidents.acknowledge, name="incident-acknowledge"),
    path("incidents/<int:incident_id>/resolve/", incidents.resolve, name="incident-resolve"),
    path("audit/", audit.site, name="audit"),
    path("latches/place/", latches.place, name="latch-place"),
    path("latches/<int:latch_id>/release/", latches.release, name="latch-release"),
    path("tasks/new/", new_task.new, name="task-new"),
    path("tasks/<int:task_id>/", include("workspaces.web.task_urls")),
    path("profiles/", profiles.index, name="profiles"),
    path("profiles/new/", profiles.new, name="profile-new"),
    path("profiles/check/", profiles.check, name="profile-check"),
    path("profiles/try-policy/", policies.try_on_past_calls, name="profile-try-policy"),
    path("profiles/<int:profile_id>/", profiles.show, name="profile"),
    path("profiles/<int:profile_id>/tools/", tool_servers.show, name="profile-tools"),
    path("profiles/<int:profile_id>/tools/decide/", tool_servers.decide, name="profile-tools-decide"),
    path("profiles/<int:profile_id>/tools/look/", tool_servers.look, name="profile-tools-look"),
    path("profiles/<int:profile_id>/new-version/", profiles.new_version, name="profile-new-version"),
    path("workspaces/", workspaces.index, name="workspaces"),
    path("workspaces/new/", workspaces.new, name="workspace-new"),
    path("workspaces/<int:workspace_id>/", workspaces.show, name="workspace"),
    path("workspaces/<int:workspace_id>/state/", sleep.state, name="workspace-state"),
    path("workspaces/<int:workspace_id>/wake/", sleep.wake, name="workspace-wake"),
    path("workspaces/<int:workspace_id>/idle-timeout/", sleep.idle_timeout, name="workspace-idle-timeout"),
    path("workspaces/<int:workspace_id>/terminal/", terminal.show, name="terminal"),
    path("workspaces/<int:workspace_id>/terminal/<int:command_id>/stop/", terminal.stop, name="terminal-stop"),
    path("workspaces/<int:workspace_id>/terminal/<int:command_id>/output/", terminal.output, name="terminal-output"),
    path("workspaces/<int:workspace_id>/isolation/", isolation.set_isolation, name="workspace-isolation"),
    path("nodes/", nodes.index, name="nodes"),
    path("workspaces/<int:workspace_id>/members/", workspaces.set_member, name="workspace-member"),
]
