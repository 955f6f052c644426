"""A message with links that act, as the courier would send it: its endpoint, its alert, its delivery."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from django.utils import timezone

from workspaces.actions.deliveries import queue
from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind
from workspaces.domain.endpoints import EndpointKind, EndpointLinks
from workspaces.domain.incidents import Severity
from workspaces.models import (
    ActionLink,
    Alert,
    AlertChange,
    AlertMember,
    AlertRule,
    Endpoint,
    Escalation,
    User,
    Workspace,
)
from workspaces.queries.action_links import with_tokens

ADDRESS = re.compile(r"https?://[^/]+(/act/[^/]+/)\Z")


def make_endpoint(
    owner: User | None, creator: User, links: EndpointLinks = EndpointLinks.ANSWER, **fields: Any
) -> Endpoint:
    values: dict[str, Any] = {
        "name": "On call",
        "kind": EndpointKind.WEBHOOK.value,
        "address": "https://hooks.example.com/x",
    } | fields
    return Endpoint.objects.create(owner=owner, created_by=creator, links=links.value, **values)


def make_alert(workspace: Workspace | None, asked: Escalation | None = None, **fields: Any) -> Alert:
    """An open alert, of the question if there is one."""
    now = timezone.now()
    rule, _ = AlertRule.objects.get_or_create(name="Anything", kinds=[kind.value for kind in AlertKind])
    kind = AlertKind.ESCALATION_OPENED if asked else AlertKind.TASK_STUCK
    values: dict[str, Any] = {
        "group_key": f"escalation:{asked.pk}" if asked else f"group:{Alert.objects.count()}",
        "severity": Severity.CRITICAL.value,
        "state": AlertState.OPEN.value,
        "title": "A call waits for approval" if asked else "Nothing happened for an hour",
    } | fields
    alert = Alert.objects.create(
        rule=rule, kind=kind.value, workspace=workspace, began_at=now, opened_at=now, changed_at=now,
        troubles=1, active=1, **values,
    )  # fmt: skip
    if asked is not None:
        AlertMember.objects.create(
            alert=alert, subject=f"escalation:{asked.pk}", kind=kind.value, severity=Severity.CRITICAL.value,
            escalation=asked, task=asked.task, workspace=workspace, began_at=now,
        )  # fmt: skip
    return alert


def links_of(alert: Alert, endpoint: Endpoint) -> dict[str, str]:
    """Paths by what they do, read from the body as it goes out."""
    payload = {
        "type": "alert.opened.v1",
        "timestamp": timezone.now().isoformat(),
        "data": {"alert": {"id": alert.pk, "title": alert.title}, "links": {}},
    }
    number = AlertChange.objects.filter(alert=alert).count() + 1
    change = AlertChange.objects.create(
        alert=alert, number=number, kind=ChangeKind.OPENED.value, at=timezone.now(), payload=payload
    )
    Alert.objects.filter(pk=alert.pk).update(last_change=number)
    (delivery,) = queue([change], [endpoint])
    sent = with_tokens(delivery.body)
    assert sent == with_tokens(delivery.body), "the same at every try"
    paths = {}
    for action, address in sent["data"]["links"].items():
        matched = ADDRESS.match(address)
        assert matched is not None, address
        assert matched[1].split("/")[2] not in str(delivery.body), "no token is stored"
        paths[action] = matched[1]
    return paths


def link(action: str) -> ActionLink:
    return ActionLink.objects.get(action=action)


def machine(**more: Any) -> Client:
    return Client(enforce_csrf_checks=True, headers={"Accept": "application/json"}, **more)
