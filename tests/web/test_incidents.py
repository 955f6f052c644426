"""The list of incidents and one of them: who sees what, in which order, and what a person may say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.harness import check_history, make_user, make_workspace, scripted_profile
from tests.web.pages import page, words
from tests.web.people import Desk
from tests.web.troubled import LOOPING, finding_of, looped, nudged, reported
from workspaces.actions.incidents import acknowledge_incident, report, resolve_incident
from workspaces.actions.pen import writing
from workspaces.actions.rollbacks import roll_back
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.models import AuditEntry, Checkpoint, Incident, Task, ToolCall, User
from workspaces.queries.incidents import Filters

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[[User], Client]
HTMX = {"HX-Request": "true"}


def listed(client: Client, query: str = "") -> list[int]:
    rows = page(client.get(f"/incidents/{query}")).all("#incident-list tbody tr")
    return [int(str(row["id"]).removeprefix("incident-row-")) for row in rows]


def test_what_needs_a_person_comes_first(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    mild = reported(task, fingerprint="1", severity=Severity.INFO)
    done = reported(task, fingerprint="2", severity=Severity.CRITICAL)
    grave = reported(task, fingerprint="3", severity=Severity.ERROR)
    newer = reported(task, fingerprint="4", severity=Severity.ERROR)
    known = reported(task, fingerprint="5", severity=Severity.CRITICAL)
    resolve_incident(done.pk, actor=desk.operator, reason="told it")
    acknowledge_incident(known.pk, actor=desk.operator)
    assert listed(signed_in(desk.viewer)) == [each.pk for each in (newer, grave, mild, known, done)]


def test_staff_see_all_and_others_only_their_own(desk: Desk, signed_in: SignIn) -> None:
    incident = reported(looped(desk))
    assert listed(signed_in(desk.staff)) == [incident.pk]
    assert listed(signed_in(desk.viewer)) == [incident.pk]
    outside = signed_in(desk.outsider)
    assert listed(outside) == []
    seen = page(outside.get("/incidents/"))
    assert "No incident yet" in seen.text("#incident-list .empty")
    assert seen.text("#incident-count") == "0 open"
    assert outside.get(f"/incidents/{incident.pk}/").status_code == 404
    for deed in ("acknowledge", "resolve"):
        assert outside.post(f"/incidents/{incident.pk}/{deed}/", {"reason": "x"}, headers=HTMX).status_code == 404
    incident.refresh_from_db()
    assert incident.state == "open"


@pytest.mark.parametrize("address", ["", "recurrence/", "compounding/", "recurrence.json", "compounding/steps.json"])
def test_a_stranger_is_sent_to_the_door(desk: Desk, address: str) -> None:
    response = Client().get(f"/incidents/{address}")
    assert response.status_code == 302
    assert "/sign-in/" in response["Location"]


def test_filters_stand_in_the_address(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    loop = reported(task)
    claim = reported(task, fingerprint="2", kind=IncidentKind.FALSE_CLAIM, severity=Severity.CRITICAL, cause="claim/x")
    acknowledge_incident(claim.pk, actor=desk.operator)
    client = signed_in(desk.viewer)
    for query, found in {
        "?kind=loop": [loop],
        "?mode=bad_call": [claim],
        "?cluster=measurement": [claim],
        "?mode=loop&cluster=measurement": [],
        "?severity=critical": [claim],
        "?state=open": [loop],
        "?state=unresolved": [loop, claim],
        "?state=resolved": [],
        f"?task={task.pk}": [loop, claim],
        "?task=1": [],
        f"?workspace={desk.workspace.pk}": [loop, claim],
        f"?profile={task.profile_version.profile_id}&period=hour": [loop, claim],
        "?cause=claim/x": [claim],
        "?kind=nonsense&period=never&page=999&task=x": [loop, claim],
    }.items():
        assert listed(client, query) == [each.pk for each in found], query
    tiles = {words(tile) for tile in page(client.get("/incidents/?severity=critical")).all("#incident-counts a")}
    assert tiles == {"1 all", "1 false claim"}
    seen = page(client.get("/incidents/?kind=loop&state=open"))
    assert seen.one("#filter-state option[selected]")["value"] == "open"
    assert seen.one("input[name=kind]")["value"] == "loop"
    assert seen.one(".count-tile[aria-current]").get_text(" ", strip=True) == "1 loop"


def test_an_address_is_made_again_from_its_filters() -> None:
    query = "?state=open&kind=loop&severity=error&workspace=3&period=day&page=2"
    fields = dict(part.split("=") for part in query[1:].split("&"))
    assert Filters.from_query(fields).address(page=2) == query
    assert Filters.from_query(fields).address() == query.removesuffix("&page=2")


def test_pages_lead_on_and_back(desk: Desk, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspaces.queries.incidents.PAGE_SIZE", 2)
    task = looped(desk)
    made = [reported(task, fingerprint=str(number)).pk for number in range(3)]
    client = signed_in(desk.viewer)
    assert listed(client) == made[:0:-1]
    assert listed(client, "?page=2") == made[:1]
    assert page(client.get("/incidents/")).one("a[rel=next]")["href"] == "?page=2"
    page(client.get("/incidents/?page=2")).none("a[rel=next]")


def test_an_open_incident_is_seen_on_fleet_task_and_frame(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    incident = reported(task, severity=Severity.ERROR)
    client = signed_in(desk.viewer)
    for address, place in (("/", f"#task-row-{task.pk}"), (f"/tasks/{task.pk}/", "#task-header")):
        seen = page(client.get(address))
        badge = seen.one(f"{place} a.tone-red")
        assert words(badge) == "1 incident"
        assert badge["href"] == f"/incidents/{incident.pk}/"
        assert seen.text("#incident-count") == "1 open"
    panel = page(client.get(f"/tasks/{task.pk}/panels/incidents/", headers=HTMX))
    assert "missing.txt" in panel.text("#incidents")
    assert panel.one("[aria-current]")["data-panel"] == "incidents"
    reported(task, fingerprint="2")
    assert page(client.get("/")).one(f"#task-row-{task.pk} a.badge")["href"] == f"/incidents/?task={task.pk}&state=open"
    for each in Incident.objects.all():
        resolve_incident(each.pk, actor=desk.operator, reason="seen")
    page(client.get(f"/tasks/{task.pk}/")).none("#task-header a.badge")
    assert "Incidents" in page(client.get(f"/tasks/{task.pk}/?panel=incidents")).text(".tabs [aria-current]")


def test_the_page_shows_the_evidence_and_that_nothing_changed(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    incident = nudged(reported(task))
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    assert seen.text(".incident-words") == incident.words
    assert "Failure mode Loop" in seen.text("#incident-head")
    assert "Planning and constraints" in seen.text("#incident-head")
    links = [str(link["href"]) for link in seen.all(".evidence a.mono")]
    assert links == [f"/tasks/{task.pk}/?before={each['seq'] + 1}#event-{each['seq']}" for each in incident.evidence]
    assert "Nothing changed between the 3 attempts" in seen.text(".attempts-summary")
    assert [words(each) for each in seen.all(".attempt-verdict")] == [
        "the first one",
        "nothing changed since step 1",
        "nothing changed since step 2",
    ]
    assert "You read missing.txt three times." in seen.text("#incident-answers")
    assert "will tell whether it helped" in seen.text("#nudge-effect")
    assert "At step 3" in seen.text("#incident-context")


def test_the_timeline_is_the_traces_own_rows_around_it(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    incident = reported(task)
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    shown = [int(str(row["data-seq"])) for row in seen.all("#incident-timeline .event")]
    assert shown == list(range(incident.first_seq - 6, incident.last_seq + 7)), (
        "in the order of events, with some around"
    )
    assert len(seen.all("#incident-timeline .event-proof")) == 3


def test_a_long_incident_leaves_out_what_lies_between(
    desk: Desk, signed_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workspaces.queries.incident_page.WHOLE_EVENTS", 10)
    incident = reported(looped(desk))
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    shown = [int(str(row["data-seq"])) for row in seen.all("#incident-timeline .event")]
    assert {each["seq"] for each in incident.evidence} <= set(shown)
    assert len(shown) < incident.last_seq - incident.first_seq + 13
    assert all("are left out here" in words(gap) for gap in seen.all("#incident-timeline .trace-more"))
    assert seen.all("#incident-timeline .trace-more")


def test_only_the_incidents_own_line_is_shown(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    incident = reported(task)
    back = Checkpoint.objects.filter(task=task, seq__lt=incident.first_seq).order_by("-seq").first()
    assert back is not None
    roll_back(back.pk, reason="again", actor=desk.owner)
    task.refresh_from_db()
    after = task.last_seq
    seen = page(signed_in(desk.operator).get(f"/incidents/{incident.pk}/"))
    shown = [int(str(row["data-seq"])) for row in seen.all("#incident-timeline .event")]
    assert max(shown) < after
    assert all(
        "abandoned" in words(row)
        for row in seen.all("#incident-timeline .event")
        if int(str(row["data-seq"])) > back.seq
    )


def test_evidence_cannot_show_the_calls_of_a_foreign_task(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    other = Desk(
        desk.outsider,
        desk.outsider,
        desk.outsider,
        make_user(),
        desk.staff,
        make_workspace(desk.outsider),
        desk.version,
    )
    foreign = ToolCall.objects.filter(task=looped(other)).first()
    assert foreign is not None
    evidence = (Evidence(finding_of(task).first_seq, 1, "theirs", tool_call=foreign.pk),)
    incident = reported(task, evidence=evidence)
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    seen.none(".attempt")
    seen.none(f"a[href*='calls/{foreign.pk}']")


def test_what_an_operator_may_do_leads_to_the_dialogs(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    incident = reported(task)
    seen = page(signed_in(desk.operator).get(f"/incidents/{incident.pk}/"))
    before = Checkpoint.objects.filter(task=task, seq__lt=incident.first_seq).order_by("-seq").first()
    assert before is not None
    links = [str(link.get("href")) for link in seen.all("#incident-acts a[hx-get]")]
    assert links == [f"/tasks/{task.pk}/checkpoints/{before.seq}/{deed}/" for deed in ("rollback", "fork")]
    viewers = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    viewers.none("#incident-acts .button")
    viewers.none("#acknowledge-dialog")
    viewers.none("#incident-head footer button")


def test_the_open_question_of_the_task_is_answered_here(desk: Desk, signed_in: SignIn) -> None:
    escalation = desk.held_call()
    task = escalation.task
    call = ToolCall.objects.get(task=task)
    event = task.last_seq
    evidence = (Evidence(event, 1, "it waits", tool_call=call.pk),)
    with_question = reported_on(task, evidence)
    seen = page(signed_in(desk.operator).get(f"/incidents/{with_question.pk}/"))
    assert seen.all(f"#task-escalations #escalation-{escalation.pk} [name=decision]")
    assert seen.one("#incident-acts a.button-primary")["href"] == f"#escalation-{escalation.pk}"
    assert "Message" in seen.text("#incident-acts")


def reported_on(task: Task, evidence: tuple[Evidence, ...]) -> Incident:
    found = Finding(
        kind=IncidentKind.BAD_CALL,
        severity=Severity.WARNING,
        pattern="p",
        first_seq=evidence[0].seq,
        last_seq=evidence[-1].seq,
        evidence=evidence,
        words="Look.",
        cause="bad_call/x",
        fingerprint="x",
    )
    with writing(task.pk) as pen:
        return report(pen, found).incident


def test_acknowledging_is_audited_and_answered_with_the_fresh_head(desk: Desk, signed_in: SignIn) -> None:
    incident = reported(looped(desk))
    client = signed_in(desk.operator)
    response = client.post(f"/incidents/{incident.pk}/acknowledge/", {"reason": "on it"}, headers=HTMX)
    head = page(response)
    assert "acknowledged" in head.text("#incident-head header")
    assert str(desk.operator) in head.text("#incident-head")
    assert AuditEntry.objects.get(action="incident.acknowledge").reason == "on it"
    again = client.post(f"/incidents/{incident.pk}/acknowledge/", headers=HTMX)
    assert again.status_code == 409
    assert "already acknowledged" in page(again).text(".notice")
    assert page(client.get("/incidents/")).text("#incident-count") == "0 open"
    check_history(incident.task)


def test_resolving_needs_words_and_a_refused_form_keeps_what_was_typed(desk: Desk, signed_in: SignIn) -> None:
    incident = reported(looped(desk))
    client = signed_in(desk.operator)
    address = f"/incidents/{incident.pk}/resolve/"
    by_htmx = client.post(address, {"reason": " "}, headers=HTMX)
    assert by_htmx.status_code == 409
    assert by_htmx["HX-Retarget"] == "#notice", "the dialog stays as it is, with what was typed"
    typed = "x" * 2_001
    plain = client.post(address, {"reason": typed})
    assert plain.status_code == 409
    kept = page(plain)
    assert kept.one("#resolve-dialog textarea").get_text().strip() == typed
    assert kept.one("#resolve-dialog").has_attr("data-autoshow")
    assert "at most 2,000" in kept.text("#resolve-dialog .notice")
    done = client.post(address, {"reason": "it was told where the file is"})
    assert done.status_code == 302
    closed = page(client.get(f"/incidents/{incident.pk}/"))
    assert "it was told where the file is" in closed.text("#incident-head")
    closed.none("#resolve-dialog")
    closed.none("#main [ws-connect]")
    assert AuditEntry.objects.get(action="incident.resolve").reason == "it was told where the file is"


@pytest.mark.parametrize("deed", ["acknowledge", "resolve"])
def test_only_operators_may_say_so_and_by_post(desk: Desk, signed_in: SignIn, deed: str) -> None:
    incident = reported(looped(desk))
    address = f"/incidents/{incident.pk}/{deed}/"
    assert signed_in(desk.operator).get(address).status_code == 405
    refused = signed_in(desk.viewer).post(address, {"reason": "x"}, headers=HTMX)
    assert refused.status_code == 403
    incident.refresh_from_db()
    assert incident.state == "open"


def test_a_loop_that_the_runtime_found_itself_is_shown_with_what_it_did(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk, scripted_profile(desk.owner, LOOPING))
    incident = Incident.objects.get(task=task, kind="loop")
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    assert seen.text(".incident-words") == " ".join(incident.words.split())
    assert "nudged" in seen.text("#incident-head header")
    assert "missing.txt" in seen.text("#incident-answers blockquote")
    assert len(seen.all(".attempt")) == 3
    assert "Nothing changed between the 3 attempts" in seen.text(".attempts-summary")
    assert signed_in(desk.viewer).get(str(seen.one("#incident-context a.button")["href"])).status_code == 200


def test_a_paralysis_shows_the_replies(desk: Desk, signed_in: SignIn) -> None:
    task = looped(desk)
    reply = task.model_calls.order_by("pk").first()
    assert reply is not None
    seq = finding_of(task).first_seq
    incident = reported(
        task, kind=IncidentKind.PARALYSIS, evidence=(Evidence(seq, 1, "no action", model_call=reply.pk),)
    )
    seen = page(signed_in(desk.viewer).get(f"/incidents/{incident.pk}/"))
    assert "The replies in question" in seen.text("#incident-attempts")
    assert seen.one(f".evidence a[href='/tasks/{task.pk}/replies/{reply.pk}/']")


def test_the_page_costs_a_bounded_number_of_queries(desk: Desk, signed_in: SignIn) -> None:
    incident = reported(looped(desk))
    client = signed_in(desk.operator)
    client.get(f"/incidents/{incident.pk}/")
    with CaptureQueriesContext(connection) as queries:
        client.get(f"/incidents/{incident.pk}/")
    assert len(queries) < 45
