"""Alert rules on their pages: said in words, made with a preview, kept when refused, muted, switched, put back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.web.pages import Page, page
from tests.web.people import Desk
from workspaces.actions.alert_rules import install_defaults, make_rule
from workspaces.actions.alert_signals import signal
from workspaces.actions.endpoints import make_endpoint
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.endpoints import EndpointKind
from workspaces.domain.incidents import Severity
from workspaces.domain.watched import THRESHOLDS
from workspaces.models import AlertRule, AuditEntry, Endpoint, User
from workspaces.queries.database import database_now

pytestmark = pytest.mark.django_db

INDEX = "/alerts/rules/"


def typed(**changes: Any) -> dict[str, Any]:
    return {
        "of": "me",
        "name": "loops at night",
        "kinds": ["incident", "task_stuck"],
        "incident_kinds": ["loop", "storm"],
        "scope": "site",
        "min_severity": "error",
        "severity": "",
        "hold": "5 min",
        "cooldown": "20 min",
        "remind": "2 h",
        "group_by": "workspace",
        "tell_resolved": "on",
        "stuck_minutes": "45",
    } | changes


def own(owner: User | None, actor: User, **settings: Any) -> AlertRule:
    return make_rule(owner=owner, actor=actor, **({"name": "mine", "kinds": [AlertKind.TASK_FAILED]} | settings))


def hook(owner: User | None, actor: User, settings: Any, name: str = "ops-hook") -> Endpoint:
    settings.WEBHOOK_PRIVATE = ["127.0.0.0/8"]
    address = "http://127.0.0.1:9/hook"
    return make_endpoint(kind=EndpointKind.WEBHOOK, name=name, address=address, owner=owner, actor=actor)[0]


def listed(page_: Page) -> list[str]:
    return [str(tag["id"]) for tag in page_.all("li.rule")]


def test_a_rule_is_made_and_said_in_one_sentence(desk: Desk, signed_in: Any, settings: Any) -> None:
    endpoint = hook(desk.viewer, desk.viewer, settings)
    client = signed_in(desk.viewer)
    form = page(client.get("/alerts/rules/new/"))
    form.none("[name=kinds][value=worker_unhealthy]")
    form.one("[name=kinds][value=sandbox_unhealthy]")
    for kind, thresholds in THRESHOLDS.items():
        for threshold in thresholds:
            assert form.one(f"[data-for={kind.value}] [name={threshold.name}]"), "shown where its kind is ticked"
    made = client.post("/alerts/rules/new/", typed(endpoints=[endpoint.pk], scope=f"workspace:{desk.workspace.pk}"))
    rule = AlertRule.objects.get(owner=desk.viewer)
    assert (made.status_code, made["Location"]) == (302, f"{INDEX}#rule-{rule.pk}")
    assert (rule.hold_s, rule.cooldown_s, rule.remind_s) == (300, 1_200, 7_200)
    assert rule.params == {"stuck_minutes": 45}
    assert rule.workspace == desk.workspace
    assert list(rule.endpoints.all()) == [endpoint]
    assert page(client.get(INDEX)).text(f"#rule-{rule.pk} .rule-says") == (
        "When an incident (loop or storm) opens or a task that should go on has had no event for 45 minutes (error or "
        f"worse) in the workspace {desk.workspace.name}, once it has held for 5 min; one alert a workspace; not again "
        "within 20 min; reminded every 2 h while it is open; to ops-hook and the bell."
    )


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "Give the rule a name"),
    ({"kinds": []}, "at least one thing"),
    ({"kinds": ["worker_unhealthy"]}, "worker_unhealthy is not one of the available choices"),
    ({"hold": "soon"}, "a number and a unit"),
    ({"cooldown": "1 s"}, "between 10 seconds and 7 days"),
    ({"stuck_minutes": "-5"}, "greater than or equal to 1"),
    ({"stuck_minutes": "many"}, "A number of minutes"),
    ({"scope": "workspace:999999"}, "Choose where it looks"),
    ({"scope": "user:1@2"}, "Choose where it looks"),
    ({"endpoints": ["999999"]}, "Choose again"),
]


def test_a_refused_form_keeps_what_was_typed(desk: Desk, signed_in: Any) -> None:
    client = signed_in(desk.owner)
    for changes, words in REFUSED:
        sent = typed() | changes
        response = client.post("/alerts/rules/new/", sent)
        seen = page(response)
        assert response.status_code == 422, changes
        assert words in seen.text("main"), changes
        for name in ("name", "hold", "cooldown", "remind", "stuck_minutes"):
            assert seen.one(f"#rule-form [name={name}]")["value"] == sent[name]
        assert {tag["value"] for tag in seen.all("[name=incident_kinds][checked]")} == {"loop", "storm"}
        assert seen.one("#id_group_by [selected]")["value"] == "workspace"
    assert not AlertRule.objects.filter(owner=desk.owner).exists()


def test_a_preview_shows_what_the_rule_would_have_caught_of_what_its_owner_sees(desk: Desk, signed_in: Any) -> None:
    task, now = desk.task(), database_now()
    for number, at in enumerate((now, now - timedelta(days=1), now - timedelta(days=8))):
        told: dict[str, Any] = {"task": task, "at": at, "detail": "loop", "severity": Severity.ERROR}
        signal(AlertKind.INCIDENT, Edge.BEGAN, f"incident:{number}", words=f"It turns {number}.", **told)
        signal(AlertKind.INCIDENT, Edge.ENDED, f"incident:{number}", words="It ended.", **told)
    signal(AlertKind.INCIDENT, Edge.BEGAN, "incident:9", words="Not grave.", task=task, detail="loop")
    signal(
        AlertKind.INCIDENT,
        Edge.BEGAN,
        "incident:8",
        words="Else.",
        task=task,
        detail="paralysis",
        severity=Severity.ERROR,
    )
    asked = typed(hold="soon")  # what cannot be read yet does not stand in the way
    seen = page(signed_in(desk.viewer).get("/alerts/rules/preview/", asked))
    assert "would have caught 2 events: 1 alert, as it groups them" in seen.text("#rule-preview")
    assert [tag.get_text(" ", strip=True) for tag in seen.all("#rule-caught .clamp")] == ["It turns 0.", "It turns 1."]
    assert "Not counted: task stuck" in seen.text("#rule-preview")
    nothing = page(signed_in(desk.outsider).get("/alerts/rules/preview/", asked))
    assert "caught 0 events" in nothing.text("#rule-preview")
    assert "It turns" not in nothing.text("#rule-preview")
    assert page(signed_in(desk.viewer).get("/alerts/rules/preview/")).text("#rule-preview").startswith("Choose what")


def test_a_rule_is_muted_unmuted_switched_off_and_on(desk: Desk, signed_in: Any) -> None:
    rule = own(desk.owner, desk.owner)
    client, here = signed_in(desk.owner), f"/alerts/rules/{rule.pk}/"
    state = f"#rule-{rule.pk} .rule-head"
    assert " on " in f"{page(client.get(INDEX)).text(state)} "
    assert client.post(f"{here}mute/", {"seconds": "5", "reason": "r"}).status_code == 409
    assert client.post(f"{here}mute/", {"seconds": "3600", "reason": ""}).status_code == 409
    assert client.post(f"{here}mute/", {"until": "2020-01-01T10:00", "reason": "r"}).status_code == 409
    assert client.post(f"{here}mute/", {"until": "soon", "reason": "r"}).status_code == 409
    before = database_now()
    assert client.post(f"{here}mute/", {"seconds": "3600", "reason": "we know"}).status_code == 302
    rule.refresh_from_db()
    assert rule.muted_until is not None
    assert timedelta(minutes=59) < rule.muted_until - before < timedelta(minutes=61)
    told = page(client.get(INDEX)).text(state)
    assert "muted" in told
    assert "we know" in told
    for url, header in (
        ("http://testserver/alerts/rules/", "HX-Refresh"),
        ("http://testserver/alerts/rules/?x=1#y", "HX-Redirect"),
        ("http://[", "HX-Redirect"),
    ):
        unmuted = client.post(f"{here}unmute/", headers={"HX-Request": "true", "HX-Current-URL": url})
        assert unmuted.has_header(header), f"from {url} the list is loaded again"
        client.post(f"{here}mute/", {"seconds": "3600", "reason": "we know"})
    assert client.post(f"{here}unmute/").status_code == 302
    until = f"{before + timedelta(days=2):%Y-%m-%dT%H:%M}"
    assert client.post(f"{here}mute/", {"seconds": "3600", "until": until, "reason": "r"}).status_code == 302
    rule.refresh_from_db()
    assert f"{rule.muted_until:%Y-%m-%dT%H:%M}" == until, "a written time counts before a chosen span"

    assert client.post(f"{here}switch/", {"to": "off", "reason": ""}).status_code == 409
    assert client.post(f"{here}switch/", {"to": "off", "reason": "too loud"}).status_code == 302
    seen = page(client.get(INDEX))
    assert "off" in seen.text(state)
    seen.none(f"#mute-{rule.pk}")
    assert client.post(f"{here}switch/", {"to": "on"}).status_code == 302
    assert list(AuditEntry.objects.filter(action="alert_rule.off").values_list("reason", flat=True)) == ["too loud"]


def test_a_default_is_marked_changed_and_put_back(desk: Desk, signed_in: Any) -> None:
    install_defaults()
    client = signed_in(desk.staff)
    rule = AlertRule.objects.get(builtin="quota")
    mark = f"#rule-{rule.pk} .rule-head"
    assert "default" in page(client.get(INDEX)).text(mark)
    here = f"/alerts/rules/{rule.pk}/"
    form = page(client.get(here))
    form.none("[data-open='#rule-defaults'], [data-open='#rule-remove']")
    kinds = [str(tag["value"]) for tag in form.all("[name=kinds][checked]")]
    sent = typed(name="Quota", kinds=kinds, incident_kinds=["storm"], hold="", remind="", reason="")
    refused = client.post(here, sent)
    assert refused.status_code == 422
    assert "Say why" in page(refused).text(".field:has(> #id_reason[aria-invalid]) .errors")
    assert "default" in page(refused).text(".page-head"), "a refused form still says which rule it is"
    assert client.post(here, sent | {"reason": "we want to know at once"}).status_code == 302
    rule.refresh_from_db()
    assert (rule.name, rule.hold_s) == ("Quota", 0)
    assert "default, changed" in page(client.get(INDEX)).text(mark)
    assert client.post(f"{here}remove/", {"reason": "r"}).status_code == 409, "a default is switched off instead"
    assert client.post(f"{here}defaults/", {"reason": "it was right"}).status_code == 302
    rule.refresh_from_db()
    assert rule.hold_s == 60
    assert "changed" not in page(client.get(INDEX)).text(mark)


def test_a_rule_of_ones_own_is_removed(desk: Desk, signed_in: Any) -> None:
    rule = own(desk.owner, desk.owner)
    client = signed_in(desk.owner)
    assert client.post(f"/alerts/rules/{rule.pk}/remove/", {"reason": ""}).status_code == 409
    assert client.post(f"/alerts/rules/{rule.pk}/remove/", {"reason": "not needed"}).status_code == 302
    assert client.get(f"/alerts/rules/{rule.pk}/").status_code == 404
    assert listed(page(client.get(INDEX))) == []


def test_rules_are_their_owners_and_the_sites_its_staffs(desk: Desk, signed_in: Any, settings: Any) -> None:
    mine, sites = own(desk.owner, desk.owner), own(None, desk.staff, name="the site's")
    secret = hook(desk.owner, desk.owner, settings, name="my-secret-hook")
    mine.endpoints.add(secret)
    before = AuditEntry.objects.count()
    for user, rule in ((desk.operator, mine), (desk.outsider, mine), (desk.owner, sites), (desk.outsider, sites)):
        client = signed_in(user)
        assert client.get(f"/alerts/rules/{rule.pk}/").status_code == 404
        assert client.get("/alerts/rules/preview/", {"rule": rule.pk}).status_code == 404
        for path in ("", "mute/", "unmute/", "switch/", "defaults/", "remove/"):
            sent = typed(reason="r", to="off", seconds="3600")
            assert client.post(f"/alerts/rules/{rule.pk}/{path}", sent).status_code == 404, (user, path)
    assert AuditEntry.objects.count() == before
    assert listed(page(signed_in(desk.owner).get(INDEX))) == [f"rule-{mine.pk}"]
    assert signed_in(desk.owner).get(f"/alerts/rules/{mine.pk}/mute/").status_code == 405
    assert signed_in(desk.owner).post("/alerts/rules/new/", typed(of="site")).status_code == 302
    assert AlertRule.objects.latest("pk").owner == desk.owner, "only site staff make the site's"

    staff = signed_in(desk.staff)
    seen = page(staff.get(INDEX))
    assert f"rule-{sites.pk}" in [str(tag["id"]) for tag in seen.all("#rules-site li.rule")]
    assert f"rule-{mine.pk}" in [str(tag["id"]) for tag in seen.all("#rules-others li.rule")]
    assert "my-secret-hook" not in seen.text("main"), "whom it tells is its owner's alone to see"
    assert "my-secret-hook" not in page(staff.get(f"/alerts/rules/{mine.pk}/")).text("main")
    assert staff.post(f"/alerts/rules/{mine.pk}/", typed(reason="too loud")).status_code == 302
    assert list(mine.endpoints.all()) == [secret], "and stays as it is"
    assert staff.post("/alerts/rules/new/", typed(of="site", endpoints=[secret.pk])).status_code == 422


def test_a_rule_tells_no_name_of_a_workspace_that_its_owner_has_left(desk: Desk, signed_in: Any) -> None:
    rule = own(desk.viewer, desk.viewer, scope="workspace", workspace=desk.workspace)
    client = signed_in(desk.viewer)
    assert desk.workspace.name in page(client.get(INDEX)).text(f"#rule-{rule.pk}")
    desk.workspace.memberships.filter(user=desk.viewer).delete()
    desk.workspace.name = "Kestrel"
    desk.workspace.save()
    for path in (INDEX, f"/alerts/rules/{rule.pk}/"):
        assert "Kestrel" not in page(client.get(path)).text("main"), path
