"""A short storm over alerts in the test's own database, and an audit that finds what such a storm could break."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import connection

from tests.alert_ground import AlertGround
from tests.chaos.alerts import OPENED, RESOLVED, SMALL, storm
from tests.chaos.alerts_audit import Sent, Wanted, outside
from tests.receiver import Arrival

FIRST = Sent(id="msg_1", endpoint="one", alert=7, number=1, type=OPENED, state="delivered")
LAST = Sent(id="msg_2", endpoint="one", alert=7, number=3, type=RESOLVED, state="delivered")
SENT = [FIRST, LAST]
WANTED = [Wanted("one", "incident:5", OPENED), Wanted("one", "incident:5", RESOLVED)]


def arrival(sent: Sent, at: float = 0.0, **more: Any) -> Arrival:
    data = {
        "alert": {"id": sent.alert},
        "change": {"number": sent.number},
        "evidence": [{"type": "incident", "id": 5}],
    }
    body = json.dumps({"type": sent.type, "data": data})
    return replace(Arrival(endpoint=sent.endpoint, id=sent.id, at=at, raw=body), **more)


def problems(accepted: list[Arrival], sent: list[Sent] = SENT, refused: list[Arrival] | None = None) -> set[str]:
    found = outside(accepted, refused or [], sent, WANTED)
    return {name for name, lines in found.items() if lines}


def test_what_came_in_order_once_or_again_is_well() -> None:
    assert problems([arrival(FIRST), arrival(FIRST), arrival(LAST), arrival(FIRST)]) == set()
    assert problems([arrival(FIRST), arrival(LAST)], refused=[arrival(LAST, refused="answered 503")]) == set()


def test_the_audit_finds_each_thing_that_could_be_broken() -> None:
    both = [arrival(FIRST), arrival(LAST)]
    assert problems([arrival(FIRST)]) == {"never told", "called delivered and never came"}
    assert problems(both[::-1]) == {"out of order"}
    assert problems([*both, arrival(replace(LAST, id="msg_3"))], [*SENT, replace(LAST, id="msg_3")]) == {
        "told twice under two ids"
    }
    assert problems([*both, arrival(replace(FIRST, id="msg_4", number=4))]) == {"came from nobody"}
    assert problems([*both, arrival(FIRST, raw=both[0].raw + " ")]) == {"one id, two contents"}
    assert problems([*both, arrival(FIRST, endpoint="two")]) == {"at the wrong endpoint"}
    assert problems(both, [FIRST, replace(LAST, state="pending", leased=True)]) == {"not at its end", "still leased"}
    assert problems(both, refused=[arrival(FIRST, refused="No matching signature found")]) == {"not verified"}


@pytest.mark.stack
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_a_short_storm_loses_no_alert_and_keeps_their_order() -> None:
    redis.Redis.from_url(settings.VALKEY_URL).flushall()
    mine = {
        "DATABASE_URL": os.environ["DATABASE_URL"].replace("/agentdesk?", f"/{connection.settings_dict['NAME']}?"),
        "VALKEY_URL": os.environ["VALKEY_URL"],
    }
    with AlertGround(mine | {"AGENTDESK_LEASE_S": "3"}) as ground:
        result = storm(ground, seed=101, size=SMALL)
    assert result["holds"], result
