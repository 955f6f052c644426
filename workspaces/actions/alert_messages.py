"""What the deliveries of a change say, for many changes at once: the alert as it was, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workspaces.models import AlertRule

if TYPE_CHECKING:
    from .alert_log import Entry


def payloads(rule: AlertRule, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    found = []
    for entry in entries:
        assert entry.message is not None
        alert = entry.shown
        found.append(
            {
                "type": f"alert.{entry.message.value}.v1",
                "timestamp": entry.change.at.isoformat(),
                "data": {"alert": {"id": alert.pk, "title": alert.title, "state": alert.state}},
            }
        )
    return found
