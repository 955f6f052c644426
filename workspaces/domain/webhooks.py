"""What webhooks are told: the body of each message, small whatever happens, and of one shape a type. Pure.

Thin: it says what alerts, and leads to the evidence by ids and addresses instead of carrying it.
The shapes are published as JSON schemas (schemas/NAME.json). A changed shape is another type: `.v2`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from workspaces.domain.text import clean_json, clip

MOST_BYTES = 16_000  # of a body without its links, for which 4,000 are left: the specification asks for under 20 KB
MOST_EVIDENCE = 40
MOST_SEQS = 8
TITLE_CHARS = 300
WORDS_CHARS = 2_000
EVIDENCE_CHARS = 160
NAME_CHARS = 120
_LEAST_SHARE = 0.002  # of a text: nothing is left of it


class MessageType(StrEnum):
    """What a message tells. The part before the version is never used for anything else."""

    OPENED = "alert.opened.v1"
    UPDATED = "alert.updated.v1"  # it opened again, grew, got worse or goes on
    ACKNOWLEDGED = "alert.acknowledged.v1"
    RESOLVED = "alert.resolved.v1"
    TEST = "endpoint.test.v1"


class EvidenceType(StrEnum):
    """What an item of evidence is; each has a page."""

    INCIDENT = "incident"
    ESCALATION = "escalation"
    TASK = "task"
    POOL = "pool"
    BUDGET = "budget"
    WORKSPACE = "workspace"
    ENDPOINT = "endpoint"


PATHS = {
    "alert": "/alerts/{id}/",
    EvidenceType.INCIDENT: "/incidents/{id}/",
    EvidenceType.ESCALATION: "/inbox/#escalation-{id}",
    EvidenceType.TASK: "/tasks/{id}/",
    EvidenceType.POOL: "/quota/{id}/",
    EvidenceType.BUDGET: "/budgets/{id}/",
    EvidenceType.WORKSPACE: "/workspaces/{id}/",
    EvidenceType.ENDPOINT: "/alerts/endpoints/{id}/",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of evidence. `seqs`: of events in the trace of `task`. `active`: the trouble goes on."""

    type: EvidenceType
    id: int
    title: str = ""
    task: int | None = None
    seqs: tuple[int, ...] = ()
    active: bool = True


@dataclass(frozen=True, slots=True)
class Subject:
    """An alert as a message shows it."""

    id: int
    kind: str
    severity: str
    state: str
    title: str
    words: str
    rule: int
    rule_name: str
    group: str
    troubles: int
    active: int
    reopened: int
    began_at: datetime
    opened_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str = ""
    resolved_at: datetime | None = None
    resolved_by: str = ""
    resolution: str = ""


@dataclass(frozen=True, slots=True)
class Telling:
    """The change that is told."""

    number: int
    kind: str
    at: datetime
    words: str = ""
    actor: str = ""
    via: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The evidence: what is shown of it, and how much there is of each type."""

    items: Sequence[Item] = ()
    totals: Mapping[EvidenceType, int] = field(default_factory=dict)


def alert_message(type_: MessageType, subject: Subject, telling: Telling, found: Found, *, base: str) -> dict[str, Any]:
    """The body. `base`: the site's address, without a slash at its end. Never more than MOST_BYTES as JSON."""
    items = list(found.items)[:MOST_EVIDENCE]
    body = _alert_body(type_, subject, telling, found, items, base, 1.0)
    share = 1.0
    while size_of(body) > MOST_BYTES and share > _LEAST_SHARE:
        items, share = items[: len(items) // 2], share / 2
        body = _alert_body(type_, subject, telling, found, items, base, share)
    return body


def trial_message(*, endpoint: int, name: str, sent_by: str, at: datetime, base: str) -> dict[str, Any]:
    data = {
        "endpoint": {
            "id": endpoint,
            "name": clip(name, NAME_CHARS),
            "url": url_of(EvidenceType.ENDPOINT, endpoint, base),
        },
        "message": "A test from agentdesk: nothing is wrong.",
        "sent_by": clip(sent_by, NAME_CHARS),
    }
    body: dict[str, Any] = clean_json({"type": MessageType.TEST.value, "timestamp": time_text(at), "data": data})
    return body


def url_of(type_: str, id_: int, base: str) -> str:
    return base + PATHS[type_].format(id=id_)


def body_text(body: Mapping[str, Any]) -> str:
    """What is sent, and signed: the same text whenever it is made of the same body."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def size_of(body: Mapping[str, Any]) -> int:
    return len(body_text(body).encode())


def time_text(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _alert_body(
    type_: MessageType, subject: Subject, telling: Telling, found: Found, items: list[Item], base: str, share: float
) -> dict[str, Any]:
    def cut(text: str, limit: int) -> str:
        return clip(text, max(1, int(limit * share)))

    alert = {
        "id": subject.id,
        "url": url_of("alert", subject.id, base),
        "kind": subject.kind,
        "severity": subject.severity,
        "state": subject.state,
        "title": cut(subject.title, TITLE_CHARS),
        "words": cut(subject.words, WORDS_CHARS),
        "rule": {"id": subject.rule, "name": cut(subject.rule_name, NAME_CHARS)},
        "group": cut(subject.group, 200),
        "troubles": subject.troubles,
        "active": subject.active,
        "reopened": subject.reopened,
        "began_at": time_text(subject.began_at),
        "opened_at": time_text(subject.opened_at),
        "acknowledged_at": time_text(subject.acknowledged_at),
        "acknowledged_by": cut(subject.acknowledged_by, NAME_CHARS),
        "resolved_at": time_text(subject.resolved_at),
        "resolved_by": cut(subject.resolved_by, NAME_CHARS),
        "resolution": cut(subject.resolution, WORDS_CHARS),
    }
    change = {
        "number": telling.number,
        "kind": telling.kind,
        "words": cut(telling.words, WORDS_CHARS),
        "actor": cut(telling.actor, NAME_CHARS),
        "via": telling.via,
    }
    data = {
        "alert": alert,
        "change": change,
        "evidence": [_item(one, base, cut) for one in items],
        "evidence_totals": {one.value: found.totals[one] for one in EvidenceType if found.totals.get(one)},
        "links": {},
    }
    body: dict[str, Any] = clean_json({"type": type_.value, "timestamp": time_text(telling.at), "data": data})
    return body


def _item(item: Item, base: str, cut: Any) -> dict[str, Any]:
    seqs = sorted(set(item.seqs))[:MOST_SEQS]
    url = url_of(item.type, item.id, base)
    if item.type is EvidenceType.TASK and seqs:
        url += f"#event-{seqs[0]}"
    return {
        "type": item.type.value,
        "id": item.id,
        "url": url,
        "title": cut(item.title, EVIDENCE_CHARS),
        "task_id": item.id if item.type is EvidenceType.TASK else item.task,
        "seqs": seqs,
        "active": item.active,
    }
