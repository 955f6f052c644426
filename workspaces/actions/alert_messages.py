"""What the deliveries of a change say, for many changes at once: the alert as it was, and the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workspaces.domain.webhooks import MessageType
from workspaces.models import AlertRule
from workspaces.queries.alert_messages import ToTell, messages

if TYPE_CHECKING:
    from .alert_log import Entry


def payloads(rule: AlertRule, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return messages([_to_tell(rule, entry) for entry in entries])


def _to_tell(rule: AlertRule, entry: Entry) -> ToTell:
    assert entry.message is not None
    change = entry.change
    entry.shown.rule = rule  # a copy without it would ask for it, once an alert
    return ToTell(
        alert=entry.shown,
        type=MessageType(f"alert.{entry.message.value}.v1"),
        number=change.number,
        kind=change.kind,
        at=change.at,
        words=change.words,
        actor=change.actor.get_username() if change.actor else "",
        via=change.via,
    )
