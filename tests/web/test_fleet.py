"""The fleet page: who sees what, in which order, and orders to many tasks at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.web.pages import page, words
from tests.web.people import Desk
from workspaces.actions.latches import place_latch
from workspaces.actions.tasks import cancel_task
from workspaces.domain.states import PauseMode
from workspaces.models import AuditEntry, Latch, Task, User

pytestmark = pytest.mark.django_db(transaction=True)  # the engine opens connections of its own

SignIn = Callable[[User], Client]


def rows(response: object) -> list[int]:
    return [int(str(row["id"]).removeprefix("task-row-")) for row in page(response).all("#fleet-rows > tr")]


def test_a_stranger_is_sent_to_the_sign_in_page(client: Client) -> None:
    response = client.get("/?status=failed")
    assert response.status_code == 302
    assert response.headers["Location"].startswith("/sign-in/?next=")


def test_htmx_of_somebody_signed_out_is_sent_to_the_sign_in_page(client: Client) -> None:
    response = client.post("/fleet/act/", headers={"HX-Request": "true"})
    assert response.status_code == 204
    assert response.headers["HX-Redirect"] == "/sign-in/"


def test_members_see_the_task_and_outsiders_do_not(desk: Desk, signed_in: SignIn) -> None:
    task = desk.task()
    for user in (desk.owner, desk.operator, desk.viewer, desk.staff):
        assert rows(signed_in(user).get("/")) == [task.pk]
    outside = signed_in(desk.outsider).get("/")
    assert rows(outside) == []
    assert "First, a workspace" in page(outside).text("#fleet-list .empty h2")


def test_what_needs_a_person_comes_first(desk: Desk, signed_in: SignIn) -> None:
    asking = desk.held_call().task_id
    newer = desk.task().pk
    response = signed_in(desk.viewer).get("/")
    assert rows(response) == [asking, newer]
    assert "1 open question" in page(response).text(f"#task-row-{asking} .attention")
    page(response).none(f"#task-row-{newer} .attention")
    assert rows(signed_in(desk.viewer).get("/?needs=1")) == [asking]


def test_an_overdue_wait_needs_a_person(desk: Desk, signed_in: SignIn) -> None:
    task = desk.held_call().task
    task.escalations.all().delete()
    Task.objects.filter(pk=task.pk).update(waiting_until=timezone.now() - timedelta(minutes=1))
    assert "longer" in page(signed_in(desk.viewer).get("/")).text(f"#task-row-{task.pk} .attention")


def test_filters_stand_in_the_address(desk: Desk, signed_in: SignIn) -> None:
    first, second = desk.task("Paint the shed"), desk.task("Mow the lawn")
    cancel_task(second.pk, reason="rain", actor=desk.owner)
    client = signed_in(desk.viewer)
    assert rows(client.get("/?status=paused")) == [first.pk]
    assert rows(client.get("/?q=MOW")) == [second.pk]
    assert rows(client.get(f"/?q=%23{first.pk}")) == [first.pk]
    assert rows(client.get(f"/?workspace={desk.workspace.pk}&sort=newest")) == [second.pk, first.pk]
    assert rows(client.get(f"/?user={desk.viewer.pk}")) == []
    assert rows(client.get("/?status=nonsense&page=abc&user=%00")) != []


def test_the_counts_are_of_what_the_user_can_see(desk: Desk, signed_in: SignIn) -> None:
    desk.task()
    assert words(page(signed_in(desk.viewer).get("/")).all("#fleet-counts a")[1]) == "1 all"
    assert words(page(signed_in(desk.outsider).get("/")).all("#fleet-counts a")[1]) == "0 all"


def act(client: Client, action: str, tasks: list[int], **more: str) -> object:
    return client.post(
        "/fleet/act/", {"action": action, "task": tasks, "reason": "test", **more}, headers={"HX-Request": "true"}
    )


def test_bulk_orders_tell_what_came_of_each_task(desk: Desk, signed_in: SignIn) -> None:
    paused, ended = desk.task(), desk.task()
    cancel_task(ended.pk, reason="x", actor=desk.owner)
    response = act(signed_in(desk.operator), "resume", [paused.pk, ended.pk])
    assert page(response).text("#bulk-results-title") == "Resume: 1 of 2 done"
    refused = page(response).text(".result-refused")
    assert f"#{ended.pk}" in refused
    assert "cancelled" in refused
    assert Task.objects.get(pk=paused.pk).status == "queued"


def test_bulk_orders_reach_no_task_of_strangers_and_none_by_viewers(desk: Desk, signed_in: SignIn) -> None:
    task = desk.task()
    assert not page(act(signed_in(desk.outsider), "cancel", [task.pk])).all(".results li")
    assert "viewer" in page(act(signed_in(desk.viewer), "cancel", [task.pk])).text(".result-refused")
    assert Task.objects.get(pk=task.pk).status == "paused"


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_a_bulk_order_that_stops_work_needs_a_reason(desk: Desk, signed_in: SignIn, action: str) -> None:
    task = desk.task(hold=False)
    response = act(signed_in(desk.operator), action, [task.pk], reason="  ")
    assert response.status_code == 409  # type: ignore[attr-defined]
    assert response.headers["HX-Retarget"] == "#notice"  # type: ignore[attr-defined]
    assert "reason" in page(response).text(".notice-error")
    assert Task.objects.get(pk=task.pk).status == "queued"


def test_bulk_orders_take_posts_only(desk: Desk, signed_in: SignIn) -> None:
    assert signed_in(desk.operator).get("/fleet/act/").status_code == 405
    assert signed_in(desk.operator).post("/").status_code == 405


def test_only_staff_hold_the_fleet(desk: Desk, signed_in: SignIn) -> None:
    task = desk.task(hold=False)
    order = {"scope": "fleet", "mode": "boundary", "reason": "provider on fire"}
    assert signed_in(desk.owner).post("/latches/place/", order).status_code == 403
    assert signed_in(desk.staff).post("/latches/place/", order).status_code == 302
    assert Task.objects.get(pk=task.pk).status == "paused"
    assert "provider on fire" in page(signed_in(desk.viewer).get("/")).text("#fleet-hold")
    page(signed_in(desk.viewer).get("/")).none("#release-fleet")
    latch = Latch.objects.get(task=None)
    release = f"/latches/{latch.pk}/release/"
    assert signed_in(desk.owner).post(release, {"reason": "ok"}).status_code == 403
    assert signed_in(desk.staff).post(release, {"reason": "ok"}).status_code == 302
    assert Task.objects.get(pk=task.pk).status == "queued"
    again = signed_in(desk.staff).post(release, {"reason": "ok"})
    assert again.status_code == 409
    assert "already released" in page(again).text("#problem")


def test_owners_hold_their_workspace_operators_do_not_and_outsiders_find_nothing(desk: Desk, signed_in: SignIn) -> None:
    order = {"scope": "workspace", "workspace": desk.workspace.pk, "mode": "now", "reason": "audit"}
    assert signed_in(desk.outsider).post("/latches/place/", order).status_code == 404
    assert signed_in(desk.operator).post("/latches/place/", order).status_code == 403
    assert signed_in(desk.owner).post("/latches/place/", order | {"reason": ""}).status_code == 409
    assert signed_in(desk.owner).post("/latches/place/", order).status_code == 302
    assert Latch.objects.get().mode == "now"
    assert AuditEntry.objects.filter(action="latch.place", workspace=desk.workspace).count() == 1
    assert "audit" in page(signed_in(desk.viewer).get("/")).text(".hold")
    release = f"/latches/{Latch.objects.get().pk}/release/"
    for person, answer in ((desk.outsider, 404), (desk.operator, 403), (desk.owner, 302)):
        assert signed_in(person).post(release, {"reason": "over"}).status_code == answer


def test_a_hold_of_one_task_is_not_released_here(desk: Desk, signed_in: SignIn) -> None:
    desk.task()
    latch = Latch.objects.get()
    assert signed_in(desk.staff).post(f"/latches/{latch.pk}/release/", {"reason": "x"}).status_code == 404


def test_a_held_user_may_not_release_the_hold(desk: Desk, signed_in: SignIn) -> None:
    latch = place_latch(mode=PauseMode.NOW, reason="budget", actor=desk.staff, user=desk.owner)
    release = f"/latches/{latch.pk}/release/"
    assert signed_in(desk.owner).post(release, {"reason": "x"}).status_code == 403
    assert signed_in(desk.outsider).post(release, {"reason": "x"}).status_code == 404
