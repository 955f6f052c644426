"""What site staff set of a pool: taken, audited and told; refused in words, with what was typed kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.harness import scripted_profile
from tests.web.pages import page
from tests.web.people import Desk
from tests.web.pooled import make_pool, wait_in
from workspaces.domain.quotas import PoolState
from workspaces.models import AuditEntry, QuotaClaim, QuotaNotice, QuotaPool, QuotaShare, Task
from workspaces.queries.database import database_now

pytestmark = pytest.mark.django_db


def typed(pool: QuotaPool, **changes: Any) -> dict[str, Any]:
    return {"name": pool.name, "group": pool.group, **pool.limits, "reason": "the contract changed", **changes}


def test_limits_are_set_with_a_reason_and_told(desk: Desk, signed_in: Any) -> None:
    pool = make_pool()
    client = signed_in(desk.staff)
    seen = page(client.get(f"/quota/{pool.pk}/settings/"))
    assert seen.one("#id_requests_per_minute")["value"] == "3"
    response = client.post(f"/quota/{pool.pk}/settings/", typed(pool, requests_per_minute=30, retry_ratio="0.2"))
    assert response.status_code == 302
    pool.refresh_from_db()
    assert pool.limits == {"requests_per_minute": 30, "concurrent_calls": 2}
    assert pool.policy == {"retry_ratio": 0.2}
    assert not pool.by_hand, "it still is the pool of one model"
    entry = AuditEntry.objects.get(action="quota.change")
    assert (entry.actor, entry.reason) == (desk.staff, "the contract changed")
    assert entry.data["before"]["limits"]["requests_per_minute"] == 3
    told = page(client.get(f"/quota/{pool.pk}/")).text("#pool-notices")
    assert "requests per minute 3 → 30; retries: retry ratio not set → 0.2. the contract changed" in told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reason": ""}, "Say why"),
        ({"requests_per_minute": "0"}, "At least 1"),
        ({"requests_per_minute": "many"}, "A whole number"),
        ({"group": "gpt 4"}, "one word"),
        ({"retry_ratio": "1.5"}, "at most 1"),
        ({"first_open_s": "400"}, "cannot be longer"),
        ({}, "Nothing is different"),
    ],
)
def test_a_refused_form_keeps_what_was_typed(desk: Desk, signed_in: Any, changes: dict[str, str], words: str) -> None:
    pool = make_pool()
    response = signed_in(desk.staff).post(f"/quota/{pool.pk}/settings/", typed(pool) | changes)
    seen = page(response)
    assert response.status_code == 422
    assert words in seen.text("main")
    for name, value in (typed(pool) | changes).items():
        field = seen.one(f"#pool-form [name={name}]")
        assert str(field.get("value", field.get_text())) == str(value)
    assert not AuditEntry.objects.filter(action="quota.change").exists()


def test_members_set_nothing(desk: Desk, signed_in: Any) -> None:
    pool = make_pool(by_hand=True)
    wait_in(pool, desk.task())
    for user in (desk.owner, desk.operator, desk.viewer):
        client = signed_in(user)
        assert client.get(f"/quota/{pool.pk}/settings/").status_code == 403
        assert client.get("/quota/new/").status_code == 403
        for path in ("settings", "weight", "probe", "retire"):
            assert client.post(f"/quota/{pool.pk}/{path}/", typed(pool)).status_code == 403, path
        seen = page(client.get(f"/quota/{pool.pk}/"))
        seen.none("#quota-probe")
        seen.none(f"[href='/quota/{pool.pk}/settings/']")


def test_a_weight_is_set_while_the_user_waits(desk: Desk, signed_in: Any) -> None:
    pool = make_pool(state=PoolState(active=1, active_weight=1.0, waiting=1).as_json())
    wait_in(pool, desk.task())
    client = signed_in(desk.staff)
    told = {"user": desk.owner.username, "weight": "4", "weight_reason": "they pay for it"}
    assert client.post(f"/quota/{pool.pk}/weight/", told).status_code == 302
    assert QuotaShare.objects.get(pool=pool, user=desk.owner).weight == 4.0
    pool.refresh_from_db()
    assert PoolState.from_json(pool.state).active_weight == 4.0
    assert AuditEntry.objects.get(action="quota.weight").data["after"] == 4.0
    refused = client.post(f"/quota/{pool.pk}/weight/", told | {"user": "nobody-here"})
    assert refused.status_code == 422
    assert "There is no user of that name" in page(refused).text("#weight-form")
    assert page(refused).one("#id_weight")["value"] == "4"


def test_an_open_circuit_lets_one_call_try_at_once(desk: Desk, signed_in: Any) -> None:
    now = database_now()
    state = PoolState(circuit="open", open_until=now.timestamp() + 300)
    pool = make_pool(state=state.as_json(), circuit="open")
    client = signed_in(desk.staff)
    assert client.post(f"/quota/{pool.pk}/probe/", {"reason": ""}).status_code == 409
    assert client.post(f"/quota/{pool.pk}/probe/", {"reason": "their status page is green"}).status_code == 302
    pool.refresh_from_db()
    after = PoolState.from_json(pool.state)
    assert after.circuit == "open", "one call tries; its answer closes it"
    assert after.open_until <= database_now().timestamp()
    assert QuotaNotice.objects.get(pool=pool).actor == desk.staff


def test_a_block_is_ended_by_hand_and_nothing_else_is(desk: Desk, signed_in: Any) -> None:
    now = database_now()
    until = now + timedelta(minutes=5)
    state = PoolState(blocked_until=until.timestamp())
    pool = make_pool(state=state.as_json(), blocked_until=until, blocked_reason="429")
    client = signed_in(desk.staff)
    assert client.post(f"/quota/{pool.pk}/probe/", {"reason": "they lifted it"}).status_code == 302
    pool.refresh_from_db()
    assert pool.blocked_until is None
    assert PoolState.from_json(pool.state).blocked_until == 0.0
    again = client.post(f"/quota/{pool.pk}/probe/", {"reason": "once more"})
    assert again.status_code == 409
    assert "Nothing holds this pool back" in again.content.decode()


@pytest.mark.django_db(transaction=True)
def test_what_waits_in_a_pool_asks_again_when_one_by_hand_is_made_and_when_that_is_retired(
    desk: Desk, signed_in: Any
) -> None:
    version = scripted_profile(desk.owner, "replies: [{text: hello}]", model="gpt-4o")
    alone = make_pool(**version.allowance, group="gpt-4o", state=PoolState(waiting=1).as_json())
    task = desk.task()
    wait_in(alone, task)
    client = signed_in(desk.staff)
    form = {
        "source": version.pk,
        "name": "all of it",
        "group": "gpt-*",
        "concurrent_calls": "5",
        "reason": "one contract",
    }
    assert client.post("/quota/new/", form).status_code == 302
    pool = QuotaPool.objects.get(by_hand=True)
    assert (pool.group, pool.limits, pool.created_by) == ("gpt-*", {"concurrent_calls": 5}, desk.staff)
    _asks_again(alone, task)
    refused = client.post("/quota/new/", form)
    assert refused.status_code == 422
    assert "There is a pool for the models gpt-*" in page(refused).text("#form-errors")
    assert page(refused).one("#id_source [selected]")["value"] == str(version.pk)

    QuotaClaim.objects.all().delete()
    wait_in(pool, task)
    assert client.post(f"/quota/{alone.pk}/retire/", {"reason": "r"}).status_code == 409, "it would be made again"
    assert client.post(f"/quota/{pool.pk}/retire/", {"reason": "the contract ended"}).status_code == 302
    pool.refresh_from_db()
    assert pool.retired_at is not None
    _asks_again(pool, task)
    seen = page(client.get(f"/quota/{pool.pk}/"))
    assert "retired" in seen.text("#pool-head")
    seen.none("#quota-retire")
    assert client.post(f"/quota/{pool.pk}/settings/", typed(pool, name="other")).status_code == 422


def _asks_again(pool: QuotaPool, task: Task) -> None:
    pool.refresh_from_db()
    task.refresh_from_db()
    assert PoolState.from_json(pool.state).waiting == 0
    assert QuotaClaim.objects.get(pool=pool, task=task).state == "idle"
    assert QuotaShare.objects.get(pool=pool, user=task.created_by).open == 0
    assert task.waiting_until is not None
    assert task.waiting_until < database_now() + timedelta(minutes=1)
