"""The inbox, live: a card is replaced only when it was answered or closed, so that nobody loses what they type."""

from __future__ import annotations

from django.template.loader import render_to_string

from workspaces.domain.states import EscalationStatus
from workspaces.queries.access import visible_escalations
from workspaces.queries.budget_pages import alerts
from workspaces.queries.escalations import cards_of_tasks
from workspaces.web.frame_counts import frame_counts

from .lists import LiveList


class InboxConsumer(LiveList):
    """`shown` holds escalations here."""

    def prepare(self) -> None:
        self.closed: set[int] = set()  # already sent as closed

    def tasks_shown(self) -> set[int]:
        return set(visible_escalations(self.user).filter(pk__in=self.shown).values_list("task", flat=True))

    def fragments(self, tasks: set[int]) -> str:
        parts: list[str] = []
        new = 0
        for card in cards_of_tasks(self.user, tasks):
            pk = card.escalation.pk
            if pk in self.shown and not card.is_open and pk not in self.closed:
                self.closed.add(pk)
                parts.append(render_to_string("escalations/_card.html", {"card": card, "oob": True}))
            elif pk not in self.shown and card.is_open:
                new += 1
        if new or parts:
            new = self._open_elsewhere()
            parts.append(render_to_string("escalations/_new.html", {"count": new, "oob": True}))
        parts.append(render_to_string("budgets/_alerts.html", {"alerts": alerts(self.user), "oob": True}))
        parts.append(frame_counts(self.user))
        return "".join(parts)

    def _open_elsewhere(self) -> int:
        found = visible_escalations(self.user).filter(status=EscalationStatus.OPEN.value).exclude(pk__in=self.shown)
        return found.count()
