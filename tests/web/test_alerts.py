"""The list of alerts, one of them, and the bell: who sees what, in which order, and what a person may say."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.harness import make_workspace
from tests.web.alerted import alerted, began, make_rule, opened_ago
from tests.web.pages import page, words
from tests.web.people import Desk
from tests.web.troubled import looped, reported
from workspaces.actions.alerts import acknowledge_alert, digest, resolve_alert
from workspaces.actions.workspaces import set_member
from workspaces.domain.alerts import AlertKind, Edge, GroupBy
from workspaces.domain.incidents import Severity
from workspaces.domain.states import ProcessRole
from workspaces.engine.watch import Heart
from workspaces.models import Alert, AuditEntry, Delivery, Endpoint, User
from workspaces.queries.alert_times import taken_up, times_of
from workspaces.queries.alerts import Filters
from workspaces.queries.database import database_now

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


def listed(client: Client, query: str = "") -> list[int]:
    rows = page(client.get(f"/alerts/{query}")).all("#alert-list tbody tr")
    return [int(str(row["id"]).removeprefix("alert-row-")) for row in rows]


def test_what_needs_a_person_comes_first_and_each_state_has_its_tab(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    mild = alerted(desk, "a:1", severity=Severity.INFO)
    grave = alerted(desk, "a:2", severity=Severity.CRITICAL)
    newer = alerted(desk, "a:3", severity=Severity.INFO)
    known, done = alerted(desk, "a:4"), alerted(desk, "a:5")
    acknowledge_alert(known.pk, actor=desk.operator)
    resolve_alert(done.pk, actor=desk.operator, reason="told it")
    client = signed_in(desk.viewer)
    assert listed(client) == [each.pk for each in (grave, newer, mild)]
    assert listed(client, "?state=acknowledged") == [known.pk]
    assert listed(client, "?state=resolved") == [done.pk]
    assert listed(client, "?state=all") == [each.pk for each in (grave, newer, mild, known, done)]
    seen = page(client.get("/alerts/?severity=info"))
    assert [words(tab) for tab in seen.all("#alert-states a")] == ["Open 2", "Acknowledged 0", "Resolved 0", "All 2"]
    tiles = [words(tile) for tile in seen.all("#alert-tiles a")]
    assert tiles == ["1 critical, open", "0 error, open", "0 warning, open", "2 info, open"]


def test_the_page_says_who_keeps_tasks_going_and_to_everybody_when_nobody_does(desk: Desk, signed_in: SignIn) -> None:
    viewer, staff = signed_in(desk.viewer), signed_in(desk.staff)
    said = "No worker lives (none was seen lately): no task goes on. No scheduler lives (none was seen lately)"
    assert [said in words(page(each.get("/alerts/")).one("#alert-pulse")) for each in (viewer, staff)] == [True, True]
    for role in ProcessRole:
        Heart(role).beat()
    assert words(page(staff.get("/alerts/")).one("#alert-pulse")) == "1 worker and the scheduler live."
    assert page(viewer.get("/alerts/")).all("#alert-pulse") == []


def test_members_see_their_workspaces_alerts_and_owners_their_own(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    site = alerted(desk, "a:1")
    began("worker:1", kind=AlertKind.WORKER_UNHEALTHY)
    nobodys = Alert.objects.get(workspace=None)
    make_rule(name="Mine", owner=desk.owner)
    own = alerted(desk, "a:2")
    assert (own.user, own.workspace_id) == (desk.owner, None) or own.user == desk.owner
    assert listed(signed_in(desk.viewer), "?state=all") == [site.pk]
    assert set(listed(signed_in(desk.owner))) == {site.pk, own.pk}
    assert listed(signed_in(desk.owner), "?whose=mine") == [own.pk]
    assert listed(signed_in(desk.owner), "?whose=site") == [site.pk]
    staff = signed_in(desk.staff)
    assert set(listed(staff)) == {site.pk, nobodys.pk}, "what others set up for themselves is not staff's concern"
    assert set(listed(staff, "?whose=everyone")) == {site.pk, nobodys.pk, own.pk}
    for alert, who in ((own, desk.viewer), (nobodys, desk.owner), (site, desk.outsider)):
        client = signed_in(who)
        assert client.get(f"/alerts/{alert.pk}/").status_code == 404
        for deed in ("acknowledge", "resolve"):
            assert client.post(f"/alerts/{alert.pk}/{deed}/", {"reason": "x"}, headers=HTMX).status_code == 404
        assert client.post("/alerts/act/", {"action": "resolve", "reason": "x", "alert": alert.pk}).status_code == 200
        assert page(client.get("/alerts/?whose=everyone&state=all")).all(f"#alert-row-{alert.pk}") == []
    assert set(Alert.objects.values_list("state", flat=True)) == {"open"}


def test_filters_stand_in_the_address(desk: Desk, signed_in: SignIn) -> None:
    rule = make_rule()
    loop = alerted(desk, "a:1")
    began("worker:1", kind=AlertKind.QUEUE_UNHEALTHY, severity=Severity.ERROR, words="The queue stands still.")
    queue = Alert.objects.get(kind="queue_unhealthy")
    client = signed_in(desk.staff)
    for query, found in {
        "?kind=incident": [loop],
        "?severity=error": [queue],
        f"?rule={rule.pk}": [queue, loop],
        "?rule=1000000": [],
        f"?workspace={desk.workspace.pk}": [loop],
        "?q=STANDS": [queue],
        "?q=%25": [],
        "?state=acknowledged": [],
        "?state=never&kind=nonsense&rule=x&page=99": [queue, loop],
    }.items():
        assert listed(client, query) == [each.pk for each in found], query
    query = "?state=resolved&kind=incident&severity=error&rule=3&workspace=4&whose=mine&q=x&page=2"
    fields = dict(part.split("=") for part in query[1:].split("&"))
    assert Filters.from_query(fields).address(page=2) == query.replace("&q=x&page=2", "&page=2&q=x")
    seen = page(client.get("/alerts/?kind=incident&state=all"))
    assert seen.one("#filter-kind option[selected]")["value"] == "incident"
    assert seen.one("#alert-filters input[name=state]")["value"] == "all"


def test_pages_lead_on_and_back(desk: Desk, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspaces.queries.alerts.PAGE_SIZE", 2)
    make_rule()
    made = [alerted(desk, f"a:{number}").pk for number in range(3)]
    client = signed_in(desk.viewer)
    assert listed(client) == made[:0:-1]
    assert listed(client, "?page=2") == made[:1]
    assert page(client.get("/alerts/")).one("a[rel=next]")["href"] == "?page=2"
    page(client.get("/alerts/?page=2")).none("a[rel=next]")


def test_a_row_tells_what_it_is_about_how_much_of_it_and_who_took_it_up(desk: Desk, signed_in: SignIn) -> None:
    make_rule(group_by=GroupBy.WORKSPACE.value, cooldown_s=3600)
    task = desk.task()
    for subject in ("a:1", "a:2", "a:3"):
        began(subject, task=task)
    began("a:3", edge=Edge.ENDED, task=task)
    alert = opened_ago(Alert.objects.get(), 125)
    row = f"#alert-row-{alert.pk}"
    client = signed_in(desk.operator)
    seen = page(client.get("/alerts/"))
    assert seen.one(f"{row} .alert-about a")["href"] == f"/workspaces/{desk.workspace.pk}/"
    assert seen.text(f"{row} .alert-troubles") == "2 now 3 ever"
    assert "warning" in seen.text(f"{row} .alert-state")
    assert seen.all(f"{row} .alert-state svg"), "never by colour alone"
    answered = client.post(f"/alerts/{alert.pk}/acknowledge/", {"from": "list"}, headers=HTMX)
    taken = page(answered).text(f"{row} .alert-taken")
    assert taken.startswith(str(desk.operator))
    assert ", after 2 min" in taken
    page(answered).none(f"{row} [data-row-key=a]")
    shown = page(client.get(f"/alerts/{alert.pk}/"))
    assert re.search(r"2 min \d+ s after it opened", shown.text("#alert-head"))
    resolve_alert(alert.pk, actor=desk.operator, reason="cleared")
    began("a:9", task=task)
    alert.refresh_from_db()
    assert "opened again × 1" in page(client.get("/alerts/")).text(f"{row} .alert-troubles")
    entries = [(entry.action, entry.actor) for entry in AuditEntry.objects.filter(action__startswith="alert.")]
    assert entries == [("alert.acknowledge", desk.operator), ("alert.resolve", desk.operator)]


def test_a_viewer_may_not_act_and_a_refusal_keeps_what_was_typed(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    alert = alerted(desk, "a:1")
    viewer = signed_in(desk.viewer)
    seen = page(viewer.get("/alerts/"))
    seen.none("#alert-rows button")
    seen.none("#alert-rows input")
    page(viewer.get(f"/alerts/{alert.pk}/")).none("#resolve-dialog")
    for deed in ("acknowledge", "resolve"):
        assert viewer.post(f"/alerts/{alert.pk}/{deed}/", {"reason": "x"}, headers=HTMX).status_code == 403
    told = page(viewer.post("/alerts/act/", {"action": "acknowledge", "alert": alert.pk}))
    assert "you are a viewer here" in told.text(".result-refused")
    operator = signed_in(desk.operator)
    empty = operator.post(f"/alerts/{alert.pk}/resolve/", {"reason": " "})
    assert empty.status_code == 409
    assert page(empty).all("#resolve-dialog[data-autoshow] .notice-error")
    acknowledge_alert(alert.pk, actor=desk.owner)
    late = operator.post(f"/alerts/{alert.pk}/acknowledge/", {"reason": "I look at it"})
    assert page(late).text("#acknowledge-dialog textarea") == "I look at it"
    assert str(desk.owner) in page(late).text("#acknowledge-dialog .notice-error")
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by) == ("acknowledged", desk.owner)


def test_several_at_once_each_by_itself(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    one, two, three = (alerted(desk, f"a:{number}") for number in range(3))
    acknowledge_alert(one.pk, actor=desk.owner)
    client = signed_in(desk.operator)
    chosen = {"action": "acknowledge", "reason": "on it", "alert": [one.pk, two.pk, three.pk, "x", "9" * 30]}
    told = page(client.post("/alerts/act/", chosen, headers=HTMX))
    assert told.text("#bulk-results-title") == "Acknowledge: 2 of 3 done"
    assert str(desk.owner) in told.text(".result-refused")
    ticked = sorted(str(tag["data-untick"]) for tag in told.all("[data-untick]"))
    assert ticked == sorted(f"tick-{each.pk}" for each in (two, three)), "what was refused stays chosen"
    assert client.post("/alerts/act/", {"action": "resolve", "alert": two.pk}, headers=HTMX).status_code == 409
    assert client.post("/alerts/act/", {"action": "delete", "alert": two.pk}, headers=HTMX).status_code == 409
    client.post("/alerts/act/", {"action": "resolve", "reason": "done", "alert": [two.pk]})
    assert dict(Alert.objects.values_list("pk", "state")) == {
        one.pk: "acknowledged",
        two.pk: "resolved",
        three.pk: "acknowledged",
    }


def test_the_page_shows_troubles_history_and_what_was_told(desk: Desk, signed_in: SignIn) -> None:
    rule = make_rule(group_by=GroupBy.WORKSPACE.value)
    hook = Endpoint.objects.create(name="the pager", kind="webhook", address="https://h.test/", created_by=desk.staff)
    rule.endpoints.add(hook)
    incident = reported(looped(desk))
    digest()
    alert = Alert.objects.get(rule=rule)
    Delivery.objects.filter(alert=alert).update(state="failed", error="503 from the pager", attempts_made=4)
    delivery = Delivery.objects.get(alert=alert)
    acknowledge_alert(alert.pk, actor=desk.operator, reason="looking")
    staff = page(signed_in(desk.staff).get(f"/alerts/{alert.pk}/"))
    links = {str(link["href"]) for link in staff.all("#alert-troubles td a")}
    assert {f"/incidents/{incident.pk}/", f"/tasks/{incident.task_id}/"} <= links
    entries = [words(entry) for entry in staff.all(".alert-history > li")]
    assert f"Acknowledged by {desk.operator}, on the page" in entries[0]
    assert "looking" in entries[0]
    assert "the pager failed the message 4 tries 503 from the pager" in entries[-1]
    assert staff.one(f"#alert-history a[href='/alerts/deliveries/{delivery.pk}/']")
    viewer = page(signed_in(desk.viewer).get(f"/alerts/{alert.pk}/"))
    assert "the pager" not in viewer.text("#alert-history"), "the site's endpoints are its staff's"
    assert "1 of the site’s endpoint" in viewer.text("#alert-history")


def test_troubles_of_a_workspace_that_one_has_left_are_counted_not_shown(desk: Desk, signed_in: SignIn) -> None:
    make_rule(name="Mine", owner=desk.operator, group_by=GroupBy.RULE.value)
    elsewhere = make_workspace(desk.operator)
    alert = alerted(desk, "a:1")
    began("a:2", workspace=elsewhere.pk)
    set_member(desk.workspace, user=desk.operator, role=None, actor=desk.owner)
    seen = page(signed_in(desk.operator).get(f"/alerts/{alert.pk}/"))
    assert len(seen.all("#alert-troubles tbody tr")) == 1
    assert "1 more in workspaces that you are not in any more" in seen.text("#alert-troubles footer")
    seen.none(f"a[href='/workspaces/{desk.workspace.pk}/']")


def test_what_is_in_an_alert_leads_to_it(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    incident = reported(looped(desk))
    digest()
    alert = Alert.objects.get(members__incident=incident)
    client = signed_in(desk.viewer)
    assert page(client.get(f"/incidents/{incident.pk}/")).one(f"#noun-alerts a[href='/alerts/{alert.pk}/']")
    assert page(client.get(f"/tasks/{incident.task_id}/")).one(f"#task-header a.badge[href='/alerts/{alert.pk}/']")
    held = desk.held_call()
    digest()
    asked = Alert.objects.get(members__escalation=held)
    assert page(client.get("/inbox/")).all(f"#escalation-{held.pk} a[href='/alerts/{asked.pk}/']")
    assert listed(client, f"?task={held.task_id}") == [asked.pk]
    make_rule(name="Mine", owner=desk.owner)
    began("incident:z", task=incident.task, incident=incident.pk)
    assert Alert.objects.filter(members__incident=incident).count() == 2
    assert len(page(client.get(f"/incidents/{incident.pk}/")).all("#noun-alerts li")) == 1, "not the owner's own"


def test_the_bell_counts_what_is_open_and_leads_to_it(desk: Desk, signed_in: SignIn) -> None:
    make_rule()
    client = signed_in(desk.viewer)
    assert page(client.get("/inbox/")).text("#bell-count") == "no open alert"
    mild = alerted(desk, "a:1")
    grave = alerted(desk, "a:2", severity=Severity.CRITICAL)
    taken = alerted(desk, "a:3")
    acknowledge_alert(taken.pk, actor=desk.operator)
    for address in ("/", f"/workspaces/{desk.workspace.pk}/", "/alerts/"):
        seen = page(client.get(address))
        assert seen.text("#bell-count") == "!2 2 open alerts, 1 critical", address
        links = [str(link["href"]) for link in seen.all("#bell-list a")]
        assert links == [f"/alerts/{grave.pk}/", f"/alerts/{mild.pk}/"]
        assert seen.one("#bell [data-go=a]")["href"] == "/alerts/"
    assert page(signed_in(desk.outsider).get("/")).text("#bell-count") == "no open alert"
    page(Client().get("/sign-in/")).none("#bell")


def test_how_long_it_took_is_counted_from_each_opening_and_only_for_people(desk: Desk) -> None:
    make_rule(cooldown_s=3600)
    task = desk.task()
    quick, twice, by_itself = (alerted(desk, f"a:{number}", task=task) for number in range(3))
    acknowledge_alert(quick.pk, actor=desk.operator)
    resolve_alert(quick.pk, actor=desk.operator, reason="a second answer counts once")
    resolve_alert(twice.pk, actor=desk.operator, reason="at once")
    began("a:1", edge=Edge.ENDED, task=task)
    began("a:1", task=task)
    acknowledge_alert(twice.pk, actor=desk.operator)
    began("a:2", edge=Edge.ENDED, task=task)
    by_itself.refresh_from_db()
    assert by_itself.state == "resolved"
    found = taken_up(desk.viewer, database_now().replace(year=2000))
    assert len(found) == 3
    assert all(0 <= took < 60 for _, took in found)
    assert [period.times.count for period in times_of(desk.viewer)] == [3, 3]
    assert [period.times.count for period in times_of(desk.outsider)] == [0, 0]


def test_pages_cost_a_bounded_number_of_queries(desk: Desk, signed_in: SignIn) -> None:
    make_rule(group_by=GroupBy.WORKSPACE.value)
    task = desk.task()
    for number in range(12):
        began(f"a:{number}", task=task)
    grouped = Alert.objects.get()
    make_rule(name="Each")
    for number in range(12):
        began(f"b:{number}", task=task)
    client = signed_in(desk.operator)
    for address in ("/alerts/", f"/alerts/{grouped.pk}/"):
        client.get(address)
        with CaptureQueriesContext(connection) as queries:
            client.get(address)
        assert len(queries) < 45, address


def test_a_stranger_is_sent_to_the_door(desk: Desk) -> None:
    make_rule()
    alert = alerted(desk, "a:1")
    for address in ("/alerts/", f"/alerts/{alert.pk}/"):
        assert "/sign-in/" in Client().get(address)["Location"]
