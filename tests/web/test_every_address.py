"""Every address of the desk, as the router lists them: closed to strangers, to viewers where it changes something, and
never broken by what is asked or by words that are markup. A new address is tried without being named here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver

from tests.harness import SEND_INVOICE, events, work
from tests.tools.test_mcp import definition
from tests.web.linked import links_of, make_alert, make_endpoint
from tests.web.pages import page
from tests.web.people import HELD, Desk
from tests.web.pooled import hold, make_pool, noticed, past, wait_in
from tests.web.sockets import Socket
from tests.web.troubled import finding_of, looped, nudged, reported
from workspaces.actions.alert_rules import make_rule
from workspaces.actions.budget_settings import create_budget
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.incidents import acknowledge_incident, report
from workspaces.actions.pen import writing
from workspaces.actions.profiles import create_profile
from workspaces.actions.scratchpad import write_note
from workspaces.actions.tasks import create_task
from workspaces.actions.tool_servers import record_listing, record_problem
from workspaces.domain.alerts import AlertKind
from workspaces.domain.escalations import Decision
from workspaces.domain.incidents import Evidence
from workspaces.domain.mcp import offered
from workspaces.domain.states import BudgetPeriod, BudgetScope
from workspaces.models import (
    Alert,
    AuditEntry,
    Checkpoint,
    Delivery,
    DeliveryAttempt,
    Endpoint,
    Escalation,
    Event,
    Incident,
    StandingApproval,
    Task,
    Workspace,
)
from workspaces.queries.tool_servers import servers_of
from workspaces.web import routing, urls
from workspaces.web.views import schemas

pytestmark = pytest.mark.django_db(transaction=True)

BAD = """'"><img src=x onerror=alert(1)></script></textarea><b onmouseover=a()>{{7*7}}"""
MAY_BE_ASKED = {  # of one's own, not of this workspace
    *("workspaces/new/", "tasks/new/", "budgets/new/", "alerts/rules/new/", "alerts/endpoints/new/"),
}
PUBLIC = {"sign-in/", "sign-out/", "act/<str:token>/", *(f"schemas/{name}.json" for name in schemas.NAMES)}
QUERIES = ("9" * 40, "²\x00", "1@2@3", "//evil.test/" + "x" * 20_000, BAD)
NAMES = (
    *("page", "state", "kind", "mode", "cluster", "severity", "workspace", "profile", "task", "period", "cause", "by"),
    *("format", "branch", "from", "to", "section", "version", "panel", "path", "before", "after", "seq", "q", "status"),
    *("of", "rule", "alert", "type", "scope", "kinds", "endpoints", "incident_kinds", "min_severity", "hold"),
    *("snapshot", "checkpoint", "next", "count", "group", "step", "decision", "owner", "sort", "all", "file", "seen"),
)


@dataclass(frozen=True)
class Address:
    route: str
    path: str

    @property
    def named(self) -> bool:
        return "<int:" in self.route


@dataclass
class Full:
    """A desk on which each noun is there, all of whose words are markup."""

    desk: Desk
    ids: dict[str, Any]

    def addresses(self) -> list[Address]:
        return [Address(route, filled(route, self.ids)) for route in routes(urls.urlpatterns)]


def routes(patterns: list[Any], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


def filled(route: str, ids: dict[str, Any]) -> str:
    path = (
        route.replace("<slug:panel>", "scratchpad")
        .replace("<slug:chart>", "calls")
        .replace("<str:token>", str(ids["token"]))
        .replace("^", "")
        .replace("(?P<by>steps|agents).json$", "steps.json")
    )
    for name, value in ids.items():
        path = path.replace(f"<int:{name}>", str(value))
    assert "<" not in path, f"the test has nothing for {route}"
    return path


@pytest.fixture
def full(desk: Desk) -> Full:
    Workspace.objects.filter(pk=desk.workspace.pk).update(name=BAD)
    server = {"name": "bank", "transport": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"X-Key": "k3y-of-bank"}}
    profile = create_profile(
        name=BAD,
        workspace=desk.workspace,
        actor=desk.owner,
        provider="scripted",
        model=BAD,
        tools=["note", "read_file", "write_file", "finish"],
        declared_tools=[SEND_INVOICE],
        provider_options={"scenario_text": HELD.replace("ACME", "<img src=x onerror=alert(2)>")},
        local_allowed=True,
        system_prompt=BAD,
        policy=[{"name": BAD, "tool": "send_*", "verdict": "hold", "words": BAD}],
        mcp_servers=[server],
    )
    (bank,) = servers_of(profile)
    hostile = {"title": BAD, "annotations": {"title": BAD}, "inputSchema": {"type": "object", "description": BAD}}
    record_listing(profile.profile_id, bank, offered(bank, [definition("pay", description=BAD, **hostile)]))
    record_listing(profile.profile_id, bank, offered(bank, [definition("pay", description=BAD + "2", **hostile)]))
    record_problem(profile.profile_id, bank, BAD)
    task = create_task(
        workspace=desk.workspace, profile_version=profile, instruction=BAD, actor=desk.owner, title=BAD[:80]
    )
    held = Escalation.objects.get(task=work(task))
    write_note(task.pk, section="plan", text=BAD, actor=desk.owner)
    write_note(task.pk, section="plan", text=BAD + "2", actor=desk.owner)
    work(answered(held, desk))
    other = looped(desk)
    bad = {"words": BAD, "cause": f"loop/{BAD}", "evidence": (Evidence(3, 1, BAD),), "first_seq": 3}
    incident = nudged(reported(other, **bad), BAD)
    with writing(task.pk) as pen:
        mine = report(pen, finding_of(other, pattern=BAD[:40], **bad)).incident
    acknowledge_incident(incident.pk, actor=desk.owner, reason=BAD)
    again = desk.held_call()
    pool = make_pool(
        name=BAD, group=BAD, base_url=BAD, blocked_reason=BAD, blocked_until=task.created_at + timedelta(days=1)
    )
    past(pool)
    noticed(pool, BAD, task=task, actor=desk.owner)
    wait_in(pool, desk.task(BAD))
    hold(pool, desk.task(BAD + "2"))
    budget = create_budget(
        scope=BudgetScope.WORKSPACE,
        workspace=desk.workspace,
        period=BudgetPeriod.TOTAL,
        limit_tokens=10**9,
        reason=BAD,
        actor=desk.owner,
    )
    alert = make_alert(desk.workspace, again, title=BAD, words=BAD)
    endpoint = make_endpoint(desk.owner, desk.owner, name=BAD, state_reason=BAD)
    link = links_of(alert, endpoint)["reject"]
    return Full(
        desk,
        {
            "token": link.split("/")[2],
            "task_id": task.pk,
            "call_id": held.tool_call_id,
            "reply_id": events(task, "model.replied")[0]["model_call"],
            "number": 1,
            "place": 0,
            "seq": Checkpoint.objects.filter(task=task).order_by("seq").values_list("seq", flat=True)[0],
            "standing_id": StandingApproval.objects.get(task=task).pk,
            "incident_id": mine.pk,
            "escalation_id": again.pk,
            "profile_id": profile.profile_id,
            "workspace_id": desk.workspace.pk,
            "user_id": desk.owner.pk,
            "import_id": 1,
            "command_id": 1,
            "latch_id": 1,
            "pool_id": pool.pk,
            "budget_id": budget.pk,
            **alert_ids(desk, alert, endpoint),
        },
    )


def alert_ids(desk: Desk, alert: Alert, endpoint: Endpoint) -> dict[str, int]:
    """A rule of the owner's, and what was sent to an endpoint of the owner's, with a try that failed."""
    rule = make_rule(owner=desk.owner, actor=desk.owner, name=BAD, kinds=[AlertKind.INCIDENT], endpoints=[endpoint])
    (delivery,) = Delivery.objects.filter(endpoint=endpoint)
    said = {"status": 500, "error": BAD, "response_body": BAD, "response_headers": {BAD: BAD}}
    DeliveryAttempt.objects.create(delivery=delivery, number=1, outcome="refused", **said)
    return {"rule_id": rule.pk, "endpoint_id": endpoint.pk, "delivery_id": delivery.pk, "alert_id": alert.pk}


def answered(held: Escalation, desk: Desk) -> Task:
    answer_escalation(held.pk, decision=Decision.ALWAYS, actor=desk.owner, words=BAD)
    return Task.objects.get(pk=held.task_id)


def footprint() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (Alert, AuditEntry, Event, Incident, Checkpoint, Task))


def test_strangers_find_nothing_viewers_change_nothing_and_no_form_is_taken_without_its_token(
    full: Full, signed_in: Any
) -> None:
    outsider, viewer = signed_in(full.desk.outsider), signed_in(full.desk.viewer)
    before = footprint()
    tried = 0
    for address in full.addresses():
        if address.route in PUBLIC:
            continue
        for htmx in ({}, {"HX-Request": "true"}):
            seen = outsider.get(f"/{address.path}", headers=htmx)
            if address.named:
                assert seen.status_code in (404, 405), (address, seen.status_code)
                posted = outsider.post(f"/{address.path}", {"reason": "r", "words": "w"}, headers=htmx)
                assert posted.status_code in (404, 405), (address, posted.status_code)
            else:
                assert seen.status_code in (200, 403, 404, 405), (address, seen.status_code)
                assert b"onerror" not in seen.content, address
            told = viewer.post(f"/{address.path}", {"reason": "r", "words": "w", "section": "s"}, headers=htmx)
            fine = (
                (403, 404, 405, 409)
                if "latches" in address.route or address.route.endswith("act/")
                else (403, 404, 405)
            )
            assert told.status_code in fine or address.route in MAY_BE_ASKED, (address, told.status_code)
            tried += 1
    assert tried > 100
    assert footprint() == before

    _nobody_signed_in(full)
    _without_a_token(full)


def _nobody_signed_in(full: Full) -> None:
    stranger = Client()
    for address in full.addresses():
        if address.route in PUBLIC:
            continue
        for ask in (stranger.get, stranger.post):
            seen = ask(f"/{address.path}")
            assert seen.status_code in (302, 405), (address, seen.status_code)
            assert seen.status_code == 405 or seen["Location"].startswith("/sign-in/?next="), address


def _without_a_token(full: Full) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(full.desk.owner)
    before = footprint()
    for address in full.addresses():
        seen = client.post(f"/{address.path}", {"reason": "r", "words": "w", "decision": "approve"})
        assert seen.status_code in (403, 405), (address, seen.status_code)
    assert footprint() == before


def test_words_that_are_markup_stay_words_and_nothing_that_is_asked_breaks_a_page(full: Full, signed_in: Any) -> None:
    client = signed_in(full.desk.owner)
    with_words = 0
    for address in full.addresses():
        for htmx in ({}, {"HX-Request": "true"}):
            seen = client.get(f"/{address.path}", headers=htmx)
            assert seen.status_code < 500, (address, seen.status_code)
            if seen.status_code == 200 and "html" in seen.headers["Content-Type"]:
                shown = page(seen)
                assert not shown.all("[onerror], [onmouseover]"), address
                assert "49" not in [tag.get_text(strip=True) for tag in shown.all("b")], address
                with_words += b"onerror" in seen.content
    assert with_words > 20

    _queries(full, client)
    _forms(full, client)


def _queries(full: Full, client: Client) -> None:
    for address in full.addresses():
        if client.get(f"/{address.path}").status_code not in (200, 404):
            continue
        for value in QUERIES:
            seen = client.get(f"/{address.path}", dict.fromkeys(NAMES, value))
            assert seen.status_code in (200, 400, 404), (address, value[:40], seen.status_code)
            if "html" in seen.headers["Content-Type"]:
                assert not page(seen).all("[onerror], [onmouseover], [href^='javascript:'], [href^='//']"), address


def _forms(full: Full, client: Client) -> None:
    """What is posted wrongly is refused in words, whatever it is."""
    names = ("reason", "words", "decision", "definition", "seq", "section", "text", "server", "policy", "arguments")
    more = ("extra_steps", "trial_calls", "profile_id", "trial_newest", "title", "mode", "seen", "user", "idle", "http")
    for address in full.addresses():
        if address.route in PUBLIC:
            continue
        for value in ("\x00", BAD, "[" * 5_000):
            seen = client.post(f"/{address.path}", dict.fromkeys((*names, *more), value))
            assert seen.status_code < 500, (address, value[:20], seen.status_code)


def test_sockets_are_closed_to_strangers(full: Full) -> None:
    paths = [str(pattern.pattern) for pattern in routing.websocket_urlpatterns]
    named = [filled(path, full.ids) for path in paths if "<" in path]
    assert len(named) >= 3

    async def test() -> None:
        for path in named:
            for user in (full.desk.outsider, None):
                async with Socket(f"/{path}", user) as socket:
                    said = None
                    if socket.code is None:
                        await socket.send(json.dumps({"rows": [1, 2, 3]}))
                        said = await socket.message()
                    assert said is None, path
                    assert socket.code, path

    asyncio.run(test())
