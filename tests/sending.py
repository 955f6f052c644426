"""What tests of sending share: endpoints at a real receiver, alerts with changes to tell, and time that passes."""

from __future__ import annotations

import base64
import itertools
import secrets
from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from tests.harness import make_user
from tests.receiver import Receiver
from workspaces.actions import deliveries
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Severity
from workspaces.domain.webhooks import MessageType
from workspaces.models import Alert, AlertChange, AlertRule, Delivery, Endpoint, EndpointSecret, User
from workspaces.queries.alert_messages import ToTell, messages

_numbers = itertools.count(1)
_KINDS = {
    MessageType.OPENED: ChangeKind.OPENED,
    MessageType.UPDATED: ChangeKind.GREW,
    MessageType.ACKNOWLEDGED: ChangeKind.ACKNOWLEDGED,
    MessageType.RESOLVED: ChangeKind.RESOLVED,
}


def new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


class Mailroom:
    """Someone with endpoints at `receiver`, and alerts that are told there."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.boss: User = make_user(is_staff=True)

    def endpoint(self, name: str, *, url: str = "", **fields: Any) -> Endpoint:
        made = Endpoint.objects.create(
            name=name,
            kind=EndpointKind.WEBHOOK.value,
            address=url or self.receiver.url(name),
            created_by=self.boss,
            **fields,
        )
        self.add_secret(made)
        return made

    def add_secret(self, endpoint: Endpoint, **fields: Any) -> str:
        """The receiver trusts it, and it alone."""
        secret = new_secret()
        EndpointSecret.objects.create(
            endpoint=endpoint,
            sealed=EndpointSecret.sealed_of(secret),
            hint=secret[-4:],
            created_by=self.boss,
            **fields,
        )
        self.receiver.trust(endpoint.name, secret)
        return secret

    def alert(self, **fields: Any) -> Alert:
        rule, _ = AlertRule.objects.get_or_create(
            name="everything", builtin="", defaults={"kinds": [AlertKind.INCIDENT.value], "created_by": self.boss}
        )
        now = timezone.now()
        given: dict[str, Any] = {
            "rule": rule,
            "group_key": f"incident:{next(_numbers)}",
            "kind": AlertKind.INCIDENT.value,
            "severity": Severity.ERROR.value,
            "state": AlertState.OPEN.value,
            "title": "Loop in task 1",
            "words": "The same call, four times.",
            "troubles": 1,
            "active": 1,
            "began_at": now,
            "opened_at": now,
            "changed_at": now,
        }
        return Alert.objects.create(**(given | fields))

    def tell(
        self, alert: Alert, endpoints: Sequence[Endpoint], type_: MessageType = MessageType.OPENED
    ) -> list[Delivery]:
        """The alert's next change, queued."""
        alert.last_change += 1
        alert.save(update_fields=["last_change"])
        now = timezone.now()
        kind = _KINDS[type_].value
        (payload,) = messages([ToTell(alert, type_, alert.last_change, kind, now, words="It said so.")])
        change = AlertChange.objects.create(
            alert=alert, number=alert.last_change, kind=kind, at=now, words="It said so.", payload=payload
        )
        return deliveries.queue([change], endpoints)
