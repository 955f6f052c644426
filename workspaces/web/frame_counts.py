"""The counts in the frame of every page as out-of-band HTML, for the sockets. One place, so that all agree."""

from __future__ import annotations

from django.template.loader import render_to_string

from workspaces.models import User
from workspaces.queries import incidents
from workspaces.queries.budget_pages import alert_ids
from workspaces.queries.frame import open_count


def frame_counts(user: User) -> str:
    """Open questions, open incidents, and budgets that are used up or past a threshold."""
    questions: str = render_to_string("escalations/_open_count.html", {"count": open_count(user), "oob": True})
    found = render_to_string("incidents/_open_count.html", {"count": incidents.open_count(user), "oob": True})
    budgets = render_to_string("budgets/_alert_count.html", {"count": len(alert_ids(user)), "oob": True})
    return questions + found + budgets
