"""The structural audit as a page and as files, from what is really there."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection

from tests.harness import make_workspace, scripted_profile, work
from tests.web.pages import Page, page, words
from tests.web.people import Desk
from tests.web.troubled import looped, reported
from workspaces.actions.tasks import create_task
from workspaces.models import Budget, Workspace
from workspaces.queries.database import database_now

pytestmark = pytest.mark.django_db(transaction=True)


def said(seen: Page, mode: str, name: str) -> str:
    """An item's words: its name, its state, the reason."""
    (found,) = [words(item) for item in seen.all(f"#audit-{mode} .audit-item") if words(item).startswith(name)]
    return found


def test_a_tasks_audit_names_the_artifact_of_each_failure(desk: Desk, signed_in: Any) -> None:
    task = looped(desk)
    incident = reported(task)
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/audit/"))
    assert len(seen.all("#audit > tbody > tr")) == 7
    chain = said(seen, "lost_history", "Event log")
    assert f"present {task.last_seq + 1} events of 1 task" in chain
    assert "checked just now" in chain
    assert "partial" in said(seen, "lost_history", "Checkpoints"), "the local driver isolates nothing"
    assert "present 3 steps rebuilt just now, hash equal" in said(seen, "truncation", "Requests rebuilt")
    pool = said(seen, "quota", "A pool shared by tasks")
    assert "partial" in pool, "nobody knows the limits of a scripted scenario"
    assert "admitted by 1 pool; the limits of 1 are not known" in pool
    assert "missing none is set" in said(seen, "quota", "Budgets")
    assert "1 incident" in seen.text("#audit-loop th")
    link = seen.one("#audit-loop th a")
    assert link["href"] == f"/incidents/?mode=loop&task={task.pk}"
    assert str(incident.pk) in str(page(signed_in(desk.viewer).get(str(link["href"]))).soup)


def test_every_link_of_the_audit_leads_somewhere(desk: Desk, signed_in: Any) -> None:
    task = looped(desk)
    reported(task)
    client = signed_in(desk.viewer)
    for address in (f"/tasks/{task.pk}/audit/", "/audit/", "/audit/?by=clusters"):
        seen = page(client.get(address))
        links = {str(link["href"]) for link in seen.all("#audit a")}
        assert links
        for link in links:
            assert client.get(link).status_code == 200, link


def test_the_sites_audit_counts_only_what_one_may_see(desk: Desk, signed_in: Any) -> None:
    reported(looped(desk))
    mine = page(signed_in(desk.viewer).get("/audit/"))
    assert "all 1 tasks that you can see" in mine.text(".lede")
    assert "1 incident" in mine.text("#audit-loop th")
    theirs = page(signed_in(desk.outsider).get("/audit/"))
    assert "0 incidents" in theirs.text("#audit-loop th")
    assert "none of unknown outcome" in said(theirs, "lost_history", "Effect ledger")
    clusters = page(signed_in(desk.staff).get("/audit/?by=clusters"))
    assert len(clusters.all("#audit > tbody > tr")) == 6
    assert "missing" in said(clusters, "coordination", "Agents that talk to one another")


def test_an_outsider_finds_no_audit_of_a_task(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    for form in ("", "?format=json", "?format=markdown"):
        assert signed_in(desk.outsider).get(f"/tasks/{task.pk}/audit/{form}").status_code == 404


def test_it_is_downloaded_as_json_and_as_markdown(desk: Desk, signed_in: Any) -> None:
    task = looped(desk)
    client = signed_in(desk.viewer)
    response = client.get(f"/tasks/{task.pk}/audit/?format=json")
    assert response["Content-Disposition"] == f'attachment; filename="audit-of-task-{task.pk}.json"'
    told = response.json()
    assert [row["id"] for row in told["failure_modes"]][:2] == ["lost_history", "quota"]
    assert len(told["clusters"]) == 6
    first = told["failure_modes"][0]["artifacts"][0]
    assert (first["state"], first["links"][0]["url"]) == ("present", f"http://testserver/tasks/{task.pk}/")
    assert told["counts"]["missing"] >= 2
    text = client.get(f"/tasks/{task.pk}/audit/?format=markdown").content.decode()
    assert text.startswith(f"# Structural audit of task {task.pk}\n")
    assert "| control: Budgets | missing |" in text
    assert all(len(re.split(r"(?<!\\)\|", line)) == 6 for line in text.splitlines() if line.startswith("| "))


def test_a_database_without_its_triggers_is_not_called_append_only(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE workspaces_event DISABLE TRIGGER workspaces_event_append_only")
    try:
        seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/audit/"))
        assert "partial" in said(seen, "lost_history", "Event log")
        with connection.cursor() as cursor:
            cursor.execute("UPDATE workspaces_event SET data = '{}' WHERE task_id = %s AND seq = 1", [task.pk])
        rewritten = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/audit/"))
        assert "its triggers are gone" in said(rewritten, "lost_history", "Event log")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE workspaces_event ENABLE TRIGGER workspaces_event_append_only")
    broken = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/audit/"))
    assert "missing" in said(broken, "lost_history", "Event log")
    assert "broken at 1 place" in said(broken, "lost_history", "Event log")


def test_an_open_network_is_told_as_a_way_round_the_gate(desk: Desk, signed_in: Any) -> None:
    version = scripted_profile(desk.owner, "replies: [{calls: [{name: finish, arguments: {summary: done}}]}]")
    task = work(create_task(workspace=desk.workspace, profile_version=version, instruction="Go.", actor=desk.owner))
    Workspace.objects.filter(pk=desk.workspace.pk).update(network="open")
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/audit/"))
    gate = said(seen, "bad_call", "Tools that go through the gate")
    assert "partial" in gate
    assert f"commands of {version} reach the network by themselves" in gate


def test_a_budget_above_some_of_the_tasks_is_partial(desk: Desk, signed_in: Any) -> None:
    desk.task()
    other = make_workspace(desk.owner)
    create_task(workspace=other, profile_version=desk.version, instruction="Go.", actor=desk.owner, hold=True)
    fields = {"period": "month", "limit_tokens": 1_000, "created_by": desk.staff, "created_at": database_now()}
    Budget.objects.create(scope="workspace", workspace=other, **fields)
    seen = page(signed_in(desk.owner).get("/audit/"))
    assert "partial 1 budget in force" in said(seen, "quota", "Budgets")
    assert "1 of 2 tasks have none above them" in said(seen, "compounding", "Budgets")
    Budget.objects.create(scope="site", **fields)
    assert "present 2 budgets in force" in said(page(signed_in(desk.owner).get("/audit/")), "quota", "Budgets")
