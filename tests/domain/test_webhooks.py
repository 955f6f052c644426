"""What webhooks are told: of the published shape, small whatever is in it, and of no other shape without a new name."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from workspaces.domain.alerts import AlertKind, AlertState, ChangeKind, Via
from workspaces.domain.incidents import Severity
from workspaces.domain.webhooks import (
    MOST_BYTES,
    MOST_EVIDENCE,
    EvidenceType,
    Found,
    Item,
    MessageType,
    Subject,
    Telling,
    alert_message,
    body_text,
    size_of,
    trial_message,
)

AT = datetime(2026, 12, 1, 10, 0, 0, 123456, tzinfo=UTC)
BASE = "https://desk.example"
# A receiver relies on these shapes. What changes one of them is another type: copy the file to .v2, and send that.
PUBLISHED = {
    "alert.acknowledged.v1": "4b732c20bdd0e17c",
    "alert.opened.v1": "930b9375f4ddcd87",
    "alert.resolved.v1": "003b98444311d062",
    "alert.updated.v1": "8604333900631b94",
    "endpoint.test.v1": "3e4e1a1450bcbf39",
}


def schema_of(name: str) -> Any:
    return json.loads((files("workspaces.domain") / "schemas" / f"{name}.json").read_text())


def closed(schema: Any) -> Any:
    """The schema, taking nothing that it does not name: what we send is told in full."""
    if isinstance(schema, dict):
        found = {key: closed(value) for key, value in schema.items()}
        if found.get("type") == "object" and "properties" in found:
            found["additionalProperties"] = False
        return found
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


CLOSED = {one.value: Draft202012Validator(closed(schema_of(one.value))) for one in MessageType}


def subject(**more: Any) -> Subject:
    fields: dict[str, Any] = {
        "id": 7,
        "kind": AlertKind.INCIDENT.value,
        "severity": Severity.ERROR.value,
        "state": AlertState.OPEN.value,
        "title": "Loop in task 3",
        "words": "The same call, four times.",
        "rule": 2,
        "rule_name": "Incidents",
        "group": "incident:9",
        "troubles": 1,
        "active": 1,
        "reopened": 0,
        "began_at": AT,
        "opened_at": AT,
    }
    return Subject(**(fields | more))


def telling(**more: Any) -> Telling:
    return Telling(**({"number": 1, "kind": ChangeKind.OPENED.value, "at": AT, "via": Via.RUNTIME.value} | more))


def test_the_published_shapes_have_not_changed_in_silence() -> None:
    folder = files("workspaces.domain") / "schemas"
    found = {
        one.name.removesuffix(".json"): hashlib.sha256(
            json.dumps(json.loads(one.read_text()), sort_keys=True).encode()
        ).hexdigest()[:16]
        for one in folder.iterdir()
        if one.name.endswith(".json")
    }
    assert found == PUBLISHED


@pytest.mark.parametrize("name", [one.value for one in MessageType])
def test_each_shape_is_a_schema_that_names_its_type(name: str) -> None:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == schema["properties"]["type"]["const"] == name


def test_a_message_leads_to_the_alert_and_its_evidence() -> None:
    items = [
        Item(EvidenceType.INCIDENT, 9, "Loop", task=3, seqs=(12, 4)),
        Item(EvidenceType.TASK, 3, task=3, seqs=(4, 12)),
        Item(EvidenceType.POOL, 5),
    ]
    found = Found(items, {EvidenceType.INCIDENT: 41, EvidenceType.TASK: 40, EvidenceType.POOL: 1})
    body = alert_message(MessageType.OPENED, subject(), telling(), found, base=BASE)
    CLOSED["alert.opened.v1"].validate(body)
    assert body["timestamp"] == "2026-12-01T10:00:00.123Z"
    data = body["data"]
    assert data["alert"]["url"] == "https://desk.example/alerts/7/"
    assert [one["url"] for one in data["evidence"]] == [
        "https://desk.example/incidents/9/",
        "https://desk.example/tasks/3/#event-4",
        "https://desk.example/quota/5/",
    ]
    assert data["evidence"][0]["seqs"] == [4, 12]
    assert data["evidence_totals"] == {"incident": 41, "task": 40, "pool": 1}
    assert data["links"] == {}


def test_the_test_message_has_its_shape() -> None:
    CLOSED["endpoint.test.v1"].validate(trial_message(endpoint=1, name="n" * 999, sent_by="", at=AT, base=BASE))


def test_the_same_body_is_the_same_text_whatever_order_the_database_gives_it_back_in() -> None:
    body = alert_message(MessageType.OPENED, subject(), telling(), Found(), base=BASE)
    turned = dict(reversed(list(deepcopy(body).items())))
    assert body_text(body) == body_text(turned)


WORDS = st.one_of(st.text(max_size=80), st.sampled_from(["\x01", "\U0001f680", "ü", '"', "\ud800", "\x00"])).flatmap(
    lambda text: st.integers(0, 4_000).map(lambda times: text * times)
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([one for one in MessageType if one is not MessageType.TEST]),
    WORDS,
    WORDS,
    st.integers(0, 5 * MOST_EVIDENCE),
    st.sampled_from([BASE, "https://" + "a" * 250 + ".example/desk"]),
)
def test_whatever_is_in_it_a_message_is_small_and_of_its_shape(
    type_: MessageType, words: str, more: str, count: int, base: str
) -> None:
    kinds = list(EvidenceType)
    items = [
        Item(kinds[n % len(kinds)], 10**9 + n, words, task=10**9, seqs=tuple(range(10**12, 10**12 + 30)))
        for n in range(count)
    ]
    body = alert_message(
        type_,
        subject(title=words, words=more, rule_name=words, group=more, resolution=words, resolved_by=more),
        telling(words=words, actor=more),
        Found(items, dict.fromkeys(kinds, 10**12)),
        base=base,
    )
    assert size_of(body) <= MOST_BYTES
    CLOSED[type_.value].validate(body)
    assert len(body["data"]["evidence"]) <= MOST_EVIDENCE
