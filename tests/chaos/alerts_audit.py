"""After a storm over alerts: what the receiver has, beside what was to be told and what the product says it sent. Pure.

The receiver is the witness: that a delivery is called delivered proves nothing here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.receiver import Arrival


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery as the product has it. `id` is what the receiver is told; `number` counts within the alert."""

    id: str
    endpoint: str
    alert: int
    number: int
    type: str
    state: str
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was really made to happen, and so has to be told: a message of `type` about `subject` at `endpoint`."""

    endpoint: str
    subject: str
    type: str


def outside(
    accepted: Sequence[Arrival], refused: Sequence[Arrival], sent: Sequence[Sent], wanted: Iterable[Wanted]
) -> dict[str, list[str]]:
    """Every way in which the two do not agree; empty lists where they do."""
    known = {each.id: each for each in sent}
    first: dict[str, Arrival] = {}
    for arrival in accepted:
        first.setdefault(arrival.id, arrival)
    came = {Wanted(each.endpoint, subject, each.body["type"]) for each in accepted for subject in subjects_of(each)}
    return {
        "never told": [f"{each.type} about {each.subject} at {each.endpoint}" for each in wanted if each not in came],
        "called delivered and never came": [
            f"{each.id} at {each.endpoint}" for each in sent if each.state == "delivered" and each.id not in first
        ],
        "not at its end": [
            f"{each.id} at {each.endpoint} is {each.state}" for each in sent if each.state not in ("delivered",)
        ],
        "still leased": [each.id for each in sent if each.leased],
        "came from nobody": [each.id for each in first.values() if each.id not in known],
        "at the wrong endpoint": [
            f"{each.id} at {each.endpoint}"
            for each in accepted
            if each.id in known and known[each.id].endpoint != each.endpoint
        ],
        "one id, two contents": [
            f"{each.id} at {each.endpoint}" for each in accepted if first[each.id].raw != each.raw
        ],
        "told twice under two ids": _twice(first.values()),
        "out of order": _out_of_order(first.values(), known),
        "not verified": [
            f"{each.id} at {each.endpoint}: {each.refused}"
            for each in refused
            if not each.refused.startswith("answered ")
        ],
    }


def subjects_of(arrival: Arrival) -> set[str]:
    """What the message names as its evidence: "incident:17"."""
    return {f"{each['type']}:{each['id']}" for each in arrival.body["data"]["evidence"]}


def _twice(first: Iterable[Arrival]) -> list[str]:
    """By what the messages themselves say."""
    ids: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for each in first:
        data = each.body["data"]
        if "alert" in data:
            ids[each.endpoint, data["alert"]["id"], data["change"]["number"]].append(each.id)
    return [
        f"alert {key[1]} number {key[2]} at {key[0]}: {', '.join(found)}" for key, found in ids.items() if found[1:]
    ]


def _out_of_order(first: Iterable[Arrival], known: dict[str, Sent]) -> list[str]:
    """`first`: the first arrival of each id, as they came."""
    newest: dict[tuple[str, int], int] = {}
    found = []
    for arrival in first:
        if (each := known.get(arrival.id)) is None:
            continue
        line = (each.endpoint, each.alert)
        if each.number < newest.get(line, 0):
            found.append(f"alert {each.alert} at {each.endpoint}: {each.number} came after {newest[line]}")
        newest[line] = max(each.number, newest.get(line, 0))
    return found
