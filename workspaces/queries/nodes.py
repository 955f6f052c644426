"""What pages show of nodes: health, load, what is left behind on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet, Sum

from workspaces.domain.isolation import engine_runtime
from workspaces.domain.states import WorkspaceState
from workspaces.models import Leftover, Node, Workspace


@dataclass(frozen=True, slots=True)
class NodeRow:
    """`seen` is None for a node that nobody has looked at yet. `used_bytes`: limits of what is awake on it."""

    name: str
    seen: Node | None
    workspaces: int
    awake: int
    used_bytes: int

    @property
    def used_percent(self) -> int | None:
        if self.seen is None or not self.seen.memory_bytes:
            return None
        return round(100 * self.used_bytes / self.seen.memory_bytes)


def node_rows(names: Sequence[str]) -> list[NodeRow]:
    """In the site's order; the first also has the workspaces that were never placed."""
    seen = {node.name: node for node in Node.objects.filter(name__in=names)}
    awake = ~Q(state=WorkspaceState.ASLEEP.value)
    docker = Workspace.objects.filter(driver=Workspace.Driver.DOCKER.value)
    counted = (
        docker.order_by()
        .values_list("node")
        .annotate(number=Count("pk"), awake=Count("pk", filter=awake), bytes=Sum("memory_bytes", filter=awake))
    )
    loads = {name: (number, up, used or 0) for name, number, up, used in counted}
    rows = []
    for at, name in enumerate(names):
        own = [loads[key] for key in ((name, "") if at == 0 else (name,)) if key in loads]
        rows.append(
            NodeRow(name, seen.get(name), *(sum(part) for part in zip(*own, strict=True)) if own else (0, 0, 0))
        )
    return rows


def node_of(workspace: Workspace, names: Sequence[str]) -> Node:
    """As it was last seen. One that nobody has looked at yet has no memory."""
    name = workspace.node or names[0]
    return Node.objects.filter(name=name).first() or Node(name=name)


def nodes_lacking(runtime: str) -> list[str]:
    """Nodes that were seen, all of them, when none offers the runtime; empty when one does."""
    seen = list(Node.objects.filter(failing_since=None).exclude(runtimes=[]).order_by("name"))
    if any(engine_runtime(runtime, node.runtimes) for node in seen):
        return []
    return [f"{node.name}: {', '.join(node.runtimes)}" for node in seen]


def leftovers() -> QuerySet[Leftover]:
    """What moved workspaces left behind and nobody could remove yet."""
    return Leftover.objects.filter(removed_at=None).select_related("workspace").order_by("left_at")
