"""What separates a workspace's sandbox from the rest: shown on its page, and changed there by its owner."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from workspaces.actions.network import set_isolation as change
from workspaces.domain.isolation import network_of, offered_networks, offered_runtimes, runtime_of
from workspaces.domain.roles import Role
from workspaces.models import Workspace
from workspaces.queries.nodes import node_of, nodes_lacking
from workspaces.web.access import require_role, user_of, workspace_or_404
from workspaces.web.errors import done, steering

NETWORK_WORDS = {
    "none": ("No network", "Nothing inside reaches anything outside, nor the other way round."),
    "allowlist": (
        "Only the hosts on a list",
        "Through a proxy that knows them. Every attempt, allowed or refused, is in the task's trace.",
    ),
    "open": (
        "Open",
        "Whatever the engine's machine reaches, private networks and cloud metadata included. Nothing of it is traced.",
    ),
}
RUNTIME_WORDS = {
    "runc": "A container: it shares the machine's kernel.",
    "runsc": "gVisor: system calls are answered by a kernel in user space. Slower with many small files.",
    "kata": "A virtual machine of its own.",
}


def isolation_context(workspace: Workspace) -> dict[str, Any]:
    network = network_of(workspace.network, settings.SANDBOX_NETWORK)
    runtime = runtime_of(workspace.runtime, settings.SANDBOX_RUNTIME)
    return {
        "network": network.value,
        "network_words": NETWORK_WORDS[network.value][0],
        "network_is_less": network.value != workspace.network,
        "allow_text": "\n".join(workspace.network_allow),
        "runtime": runtime.value,
        "runtime_is_more": runtime.value != workspace.runtime,
        "runtime_lacking": nodes_lacking(runtime.value),
        "node": node_of(workspace, list(settings.NODES)) if workspace.driver == "docker" else None,
        "networks": [(one.value, *NETWORK_WORDS[one.value]) for one in offered_networks(settings.SANDBOX_NETWORK)],
        "runtimes": [(one.value, RUNTIME_WORDS[one.value]) for one in offered_runtimes(settings.SANDBOX_RUNTIME)],
    }


@steering
def set_isolation(request: HttpRequest, workspace_id: int) -> HttpResponse:
    workspace = workspace_or_404(request, workspace_id)
    require_role(request, workspace, Role.OWNER)
    change(
        workspace,
        network=request.POST.get("network", ""),
        allow=request.POST.get("allow", ""),
        runtime=request.POST.get("runtime", ""),
        reason=request.POST.get("reason", ""),
        actor=user_of(request),
        site_network=settings.SANDBOX_NETWORK,
        site_runtime=settings.SANDBOX_RUNTIME,
    )
    told = "Changed. It holds from the next start of the sandbox on: after it has slept."
    return done(request, told, back=reverse("workspace", args=[workspace.pk]), reload=True)
