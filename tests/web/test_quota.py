"""The quota pages: who knows of which pool, what each shows to whom, and in which order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.harness import make_user, make_workspace
from tests.web.pages import page
from tests.web.people import Desk
from tests.web.pooled import hold, make_pool, noticed, past, wait_in
from workspaces.actions.tasks import create_task
from workspaces.models import QuotaPool, Task

pytestmark = pytest.mark.django_db


def other_desk(desk: Desk) -> Desk:
    """Somebody else's workspace, whose tasks use the same profile."""
    owner = make_user("stranger", first_name="Stella", last_name="Stranger")
    return replace(desk, owner=owner, workspace=make_workspace(owner))


def filled(desk: Desk) -> tuple[QuotaPool, Task, Task]:
    """A pool that one task of each holds and waits for."""
    pool = make_pool()
    other = other_desk(desk)
    hold(pool, desk.task("Mine runs."))
    hold(pool, other.task("Secret runs."))
    theirs, mine = other.task("Secret waits."), desk.task("Mine waits.")
    wait_in(pool, theirs, minutes=7)
    wait_in(pool, mine, finish=50_000.0, interactive=True)
    past(pool)
    noticed(pool, "The provider refused: secret-org", task=theirs)
    noticed(pool, "The provider refused: my-org", task=mine)
    return pool, mine, theirs


def test_a_pool_is_known_to_those_whose_tasks_draw_on_it_and_to_staff(desk: Desk, signed_in: Any) -> None:
    pool, *_ = filled(desk)
    for user in (desk.owner, desk.viewer, desk.staff):
        assert page(signed_in(user).get("/quota/")).one(f"#quota-pool-{pool.pk}")
        assert signed_in(user).get(f"/quota/{pool.pk}/").status_code == 200
    outside = page(signed_in(desk.outsider).get("/quota/"))
    outside.none("[data-pool]")
    assert "No pool yet" in outside.text(".empty h2")
    for path in ("", "history/calls.json", "settings/"):
        assert signed_in(desk.outsider).get(f"/quota/{pool.pk}/{path}").status_code == 404


def test_a_pool_is_known_to_those_in_whose_workspace_a_profile_draws_on_it(desk: Desk, signed_in: Any) -> None:
    from tests.harness import scripted_profile

    version = scripted_profile(desk.owner, "replies: [{text: hello}]", model="gpt-4o")
    pool = make_pool(**version.allowance, group="gpt-*")
    assert signed_in(desk.viewer).get(f"/quota/{pool.pk}/").status_code == 404, (
        "the whole site's profile is no member's"
    )
    version.profile.workspace = desk.workspace
    version.profile.save()
    assert signed_in(desk.viewer).get(f"/quota/{pool.pk}/").status_code == 200
    assert signed_in(desk.outsider).get(f"/quota/{pool.pk}/").status_code == 404


def test_others_are_numbers_never_names_or_titles(desk: Desk, signed_in: Any) -> None:
    pool, mine, _ = filled(desk)
    for user in (desk.owner, desk.viewer):
        for path in ("/quota/", f"/quota/{pool.pk}/", f"/tasks/{mine.pk}/", "/"):
            text = signed_in(user).get(path).content.decode()
            assert "Secret" not in text, path
            assert "secret-org" not in text, path
            assert "stranger" not in text.lower(), path
    seen = page(signed_in(desk.owner).get(f"/quota/{pool.pk}/"))
    assert "1 more, of others" in seen.text("#pool-holders")
    assert "1 place of others" in seen.text("#pool-queue")
    assert "all others" in seen.text("#pool-users")
    assert "a call of somebody else" in seen.text("#pool-notices")
    assert "my-org" in seen.text("#pool-notices")


def test_staff_see_who_holds_it_who_waits_and_for_how_long(desk: Desk, signed_in: Any) -> None:
    pool, mine, theirs = filled(desk)
    seen = page(signed_in(desk.staff).get(f"/quota/{pool.pk}/"))
    assert "Secret runs." in seen.text("#pool-holders")
    rows = seen.all("#pool-queue tbody tr")
    assert [row.select_one("a")["href"] for row in rows] == [f"/tasks/{theirs.pk}/", f"/tasks/{mine.pk}/"]
    assert "3 of 3 requests a minute are used" in rows[0].get_text(), "why the first waits"
    assert "interactive" in rows[1].get_text()
    assert "about" in rows[1].get_text(), "an expected time"
    assert "Requests a minute full 3 / 3" in seen.text("#pool-limits")
    assert "Limit reached: requests a minute" in seen.text("#pool-head")


def test_the_lower_of_set_and_learned_binds(desk: Desk, signed_in: Any) -> None:
    pool = make_pool(limits={"requests_per_minute": 90, "concurrent_calls": 2})
    rows = page(signed_in(desk.staff).get(f"/quota/{pool.pk}/")).all("#pool-limits tbody tr")
    by_hand, learned = rows[0].select("[data-name]")
    assert "binds" in learned.get_text()
    assert "binds" not in by_hand.get_text()
    assert "x-ratelimit-limit-requests" in rows[0].get_text()
    assert "no limit" in rows[4].get_text()


def test_what_needs_a_person_comes_first(desk: Desk, signed_in: Any) -> None:
    idle = make_pool(name="a idle", group="a")
    waiting = make_pool(name="b waits", group="b")
    opened = make_pool(name="c open", group="c", circuit="open")
    wait_in(waiting, desk.task())
    seen = page(signed_in(desk.staff).get("/quota/"))
    assert [int(str(card["data-pool"])) for card in seen.all("[data-pool]")] == [opened.pk, waiting.pk, idle.pk]
    assert "circuit open" in seen.text(f"#quota-pool-{opened.pk}")
    make_pool(name="d retired", group="d", retired_at=idle.created_at)
    assert "d retired" not in page(signed_in(desk.staff).get("/quota/")).text("#quota-list")


def test_a_member_reads_their_place_on_the_list(desk: Desk, signed_in: Any) -> None:
    pool, *_ = filled(desk)
    card = page(signed_in(desk.viewer).get("/quota/")).text(f"#quota-pool-{pool.pk}")
    assert "1 task of your workspaces waits here, the first of them at place 2" in card


def test_history_is_drawn_and_its_table_has_the_same_numbers(desk: Desk, signed_in: Any) -> None:
    pool = make_pool()
    past(pool, minutes_ago=3)
    past(pool, minutes_ago=90, calls=11)
    client = signed_in(desk.staff)
    seen = page(client.get(f"/quota/{pool.pk}/?period=day"))
    assert "All of it 14" in seen.text("#pool-history .quota-sum")
    (bars, limit) = client.get(f"/quota/{pool.pk}/history/calls.json?period=day").json()["data"]
    assert sum(bars["y"]) == 14
    assert len(bars["x"]) == 144
    assert limit["y"] == [3, 3], "set by hand, and below what was learned"
    hour = client.get(f"/quota/{pool.pk}/history/waiting.json?period=hour").json()["data"]
    assert max(hour[0]["y"]) == 4
    assert max(hour[1]["y"]) == 9.0
    assert client.get(f"/quota/{pool.pk}/history/nothing.json").status_code == 404


def test_forks_are_counted_to_the_task_that_they_came_from(desk: Desk, signed_in: Any) -> None:
    pool, parent = make_pool(), desk.task("The parent.")
    for _ in range(3):
        fork = desk.task("A fork.")
        Task.objects.filter(pk=fork.pk).update(forked_from=parent)
        hold(pool, fork)
    seen = page(signed_in(desk.viewer).get(f"/quota/{pool.pk}/")).text("#pool-forks")
    assert "The parent." in seen
    assert seen.endswith("3")


def test_a_page_costs_the_same_with_one_task_in_the_pool_and_with_thirty(desk: Desk, signed_in: Any) -> None:
    pool, *_ = filled(desk)
    for user in (desk.staff, desk.viewer):
        client = signed_in(user)
        for path in ("/quota/", f"/quota/{pool.pk}/"):
            client.get(path)
            with CaptureQueriesContext(connection) as few:
                client.get(path)
            more = [
                create_task(
                    workspace=desk.workspace,
                    profile_version=desk.version,
                    instruction="More.",
                    actor=desk.owner,
                    hold=True,
                )
                for _ in range(5)
            ]
            for task in more:
                wait_in(pool, task)
                noticed(pool, "refused", task=task)
            with CaptureQueriesContext(connection) as many:
                client.get(path)
            assert len(many) == len(few), [query["sql"][:120] for query in many.captured_queries]
            assert len(many) < 40


def test_a_waiting_task_says_where_it_stands_and_why(desk: Desk, signed_in: Any) -> None:
    pool, mine, _ = filled(desk)
    said = page(signed_in(desk.viewer).get(f"/tasks/{mine.pk}/"))
    assert "Waits for quota" in said.text("#task-waiting")
    where = said.text("#task-quota")
    assert "Place 2 of 2 in gpt at example : 1 before it" in where
    assert "3 of 3 requests a minute are used" in where
    assert "Before it: 0 of the same user, 1 of others." in where
    assert "Interactive" in where
    assert said.one("#task-quota a")["href"] == f"/quota/{pool.pk}/"
    assert signed_in(desk.outsider).get(f"/tasks/{mine.pk}/").status_code == 404


def test_the_fleet_groups_quota_waits_by_pool(desk: Desk, signed_in: Any) -> None:
    pool, mine, theirs = filled(desk)
    second = make_pool(name="another", group="b")
    here = desk.task("Waits there.")
    wait_in(second, here)
    seen = page(signed_in(desk.viewer).get("/"))
    assert {link.get_text(): link["href"] for link in seen.all("#fleet-quota a")} == {
        "1 on gpt at example": f"/?pool={pool.pk}",
        "1 on another": f"/?pool={second.pk}",
    }
    assert seen.one(f"#task-row-{here.pk} .waits-for a")["href"] == f"/quota/{second.pk}/"
    only = page(signed_in(desk.viewer).get(f"/?pool={pool.pk}"))
    assert [row["id"] for row in only.all("#fleet-rows > tr")] == [f"task-row-{mine.pk}"]
    assert page(signed_in(desk.staff).get(f"/?pool={pool.pk}")).one(f"#task-row-{theirs.pk}")
