"""The network of a workspace: what its owner chose, and what was tried. Its runtime too, chosen in the same place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from django.db import transaction

from workspaces.domain.events import EventKind
from workspaces.domain.isolation import (
    BadEntry,
    NetworkMode,
    Runtime,
    allow_entries,
    offered_networks,
    offered_runtimes,
)
from workspaces.domain.text import clean_text, clip
from workspaces.models import AuditEntry, User, Workspace
from workspaces.sandboxes.base import Connection

from .clock import database_now
from .errors import Refused
from .pen import writing

SHOWN_EACH = 100  # of one call; more are counted by host


def set_isolation(
    workspace: Workspace,
    *,
    network: str,
    allow: str,
    runtime: str,
    reason: str,
    actor: User,
    site_network: str,
    site_runtime: str,
) -> None:
    """What holds from the sandbox's next start on. Raises Refused for what the site does not offer, or no reason."""
    reason = clean_text(reason).strip()
    if not reason:
        raise Refused("Say why, for whoever reads the audit log.")
    if network not in offered_networks(site_network):
        raise Refused(f"This site allows at most the network {site_network}.")
    if runtime not in offered_runtimes(site_runtime):
        raise Refused(f"This site allows no runtime below {site_runtime}.")
    try:
        entries = allow_entries(clean_text(allow)) if network == NetworkMode.ALLOWLIST.value else []
    except BadEntry as error:
        raise Refused(str(error)) from None
    if network == NetworkMode.ALLOWLIST.value and not entries:
        raise Refused("Name at least one host, or choose no network.")
    if network == NetworkMode.ALLOWLIST.value and runtime == Runtime.KATA.value:
        raise Refused("An allow-list needs a socket between sandbox and proxy, which a virtual machine has not.")
    with transaction.atomic():
        locked = Workspace.objects.select_for_update(no_key=True, of=("self",)).get(pk=workspace.pk)
        before = {"network": locked.network, "allow": locked.network_allow, "runtime": locked.runtime}
        after = {"network": network, "allow": entries, "runtime": runtime}
        if before == after:
            raise Refused("Nothing would change.")
        Workspace.objects.filter(pk=workspace.pk).update(network=network, network_allow=entries, runtime=runtime)
        AuditEntry.objects.create(
            actor=actor,
            action="workspace.isolation",
            workspace=workspace,
            reason=clip(reason, 2_000),
            data={name: value for name, value in after.items() if value != before[name]},
            at=database_now(),
        )


def connections_made(
    task_id: int,
    found: Sequence[Connection],
    *,
    after: int,
    position: int,
    fence: int | None = None,
    step: int | None = None,
) -> None:
    """An event each, and the position up to which the log is told, together: none twice, none lost."""
    with writing(task_id, fence=fence) as pen:
        mine = Workspace.objects.filter(pk=pen.task.workspace_id, network_read=after)
        if not mine.update(network_read=position):
            return  # another writer told them
        for made in found[:SHOWN_EACH]:
            pen.event(
                EventKind.NETWORK_CONNECTION,
                step=step,
                host=clip(made.host, 253),
                port=made.port,
                allowed=made.allowed,
                address=made.address,
                why=made.why,
                at=datetime.fromtimestamp(made.at, UTC).isoformat(timespec="milliseconds"),
            )
        alike = Counter((made.host, made.port, made.allowed, made.why) for made in found[SHOWN_EACH:])
        for (host, port, allowed, why), times in alike.most_common(SHOWN_EACH):
            pen.event(
                EventKind.NETWORK_CONNECTION,
                step=step,
                host=clip(host, 253),
                port=port,
                allowed=allowed,
                address="",
                why=why,
                times=times,
            )
        rest = sum(times for _, times in alike.most_common()[SHOWN_EACH:])
        if rest:
            pen.event(EventKind.NETWORK_CONNECTION, step=step, host="others", port=0, allowed=False, times=rest)
