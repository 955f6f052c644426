"""What the frame around every page shows: how much waits for a person, which holds stand, what is not isolated."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.contrib.auth.models import AnonymousUser

from workspaces.domain.states import EscalationStatus
from workspaces.models import Latch, User, Workspace

from . import incidents
from .access import visible_escalations, visible_workspaces
from .bell import Bell, bell_of
from .budget_pages import alert_ids

SECTIONS = (
    ("/alerts/", "alerts"),
    ("/inbox/", "inbox"),
    ("/incidents/", "incidents"),
    ("/audit/", "incidents"),
    ("/quota/", "quota"),
    ("/workspaces/", "workspaces"),
    ("/profiles/", "profiles"),
    ("/nodes/", "nodes"),
    ("/costs/", "costs"),
    ("/budgets/", "costs"),
    ("/prices/", "costs"),
    ("/tasks/new/", "new"),
    ("/act/", "link"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """`section`: which entry of the navigation the page belongs to."""

    section: str = ""
    open_count: int = 0
    incident_count: int = 0
    local_count: int = 0
    budget_count: int = 0
    fleet_hold: Latch | None = None
    bell: Bell = field(default_factory=Bell)


def frame_of(user: User | AnonymousUser, path: str) -> Frame:
    if not user.is_authenticated:
        return Frame()
    section = next((name for prefix, name in SECTIONS if path.startswith(prefix)), "fleet")
    return Frame(
        section=section,
        open_count=open_count(user),
        incident_count=incidents.open_count(user),
        budget_count=len(alert_ids(user)),
        local_count=visible_workspaces(user).filter(driver=Workspace.Driver.LOCAL).count(),
        fleet_hold=fleet_hold(),
        bell=bell_of(user),
    )


def open_count(user: User | AnonymousUser) -> int:
    """How many questions that the user can see wait for a person."""
    return visible_escalations(user).filter(status=EscalationStatus.OPEN.value).count()


def fleet_hold() -> Latch | None:
    """The order that holds the whole fleet, if one stands."""
    return (
        Latch.objects.filter(task=None, workspace=None, user=None, released_at=None).select_related("placed_by").first()
    )
