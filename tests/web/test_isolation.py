"""A workspace's network and runtime: shown to members, changed by owners with a reason; the nodes, for staff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import LazySettings
from django.test import Client

from tests.web.pages import page
from tests.web.people import Desk
from workspaces.actions import nodes as seen
from workspaces.engine.boxes import sandbox_for
from workspaces.models import AuditEntry, Leftover, Node, User, Workspace
from workspaces.sandboxes.engines import EngineFacts

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def in_docker(desk: Desk, settings: LazySettings) -> None:
    settings.SANDBOX_NETWORK = "allowlist"
    Workspace.objects.filter(pk=desk.workspace.pk).update(driver="docker")


def post(client: Client, desk: Desk, **form: str) -> Any:
    wanted = {"network": "allowlist", "allow": "example.com", "runtime": "runc", "reason": "it installs packages"}
    return client.post(f"/workspaces/{desk.workspace.pk}/isolation/", wanted | form)


def card(client: Client, desk: Desk) -> str:
    return str(page(client.get(f"/workspaces/{desk.workspace.pk}/")).text("#isolation"))


def test_an_owner_names_hosts_and_it_is_audited(desk: Desk, signed_in: SignIn, settings: LazySettings) -> None:
    owner = signed_in(desk.owner)
    assert "No network" in card(owner, desk)
    assert post(owner, desk, allow="Example.com\n*.example.org:443, files.example.net:8443").status_code == 302
    workspace = Workspace.objects.get(pk=desk.workspace.pk)
    allow = ["*.example.org:443", "example.com:443", "example.com:80", "files.example.net:8443"]
    assert (workspace.network, workspace.network_allow) == ("allowlist", allow)
    entry = AuditEntry.objects.get(action="workspace.isolation")
    assert (entry.actor, entry.reason) == (desk.owner, "it installs packages")
    assert entry.data == {"network": "allowlist", "allow": allow}
    assert "*.example.org:443" in card(signed_in(desk.viewer), desk)
    settings.SANDBOX_NETWORK = "none"  # the site becomes stricter afterwards
    assert "No network" in card(owner, desk)
    assert "allows no more" in card(owner, desk)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"reason": " "}, "why"),
        ({"network": "open"}, "at most"),
        ({"network": "moon"}, "at most"),
        ({"runtime": "moon"}, "no runtime"),
        ({"allow": ""}, "at least one"),
        ({"allow": "http://example.com/"}, "no host"),
        ({"allow": "*.com"}, "too much"),
        ({"allow": "example.com:99999"}, "no port"),
        ({"network": "none"}, "Nothing would change"),
        ({"runtime": "kata"}, "virtual machine"),
    ],
)
def test_what_the_site_does_not_offer_is_refused_in_words(
    desk: Desk, signed_in: SignIn, form: dict[str, str], told: str
) -> None:
    response = post(signed_in(desk.owner), desk, **form)
    assert response.status_code == 409
    assert told in page(response).text("#problem")
    assert Workspace.objects.get(pk=desk.workspace.pk).network == "none"
    assert not AuditEntry.objects.filter(action="workspace.isolation").exists()


def test_a_list_that_is_refused_stays_as_it_was_typed(desk: Desk, signed_in: SignIn) -> None:
    owner = signed_in(desk.owner)
    form = page(owner.get(f"/workspaces/{desk.workspace.pk}/")).one("#change-isolation form")
    assert (form["hx-post"], form["hx-swap"]) == (f"/workspaces/{desk.workspace.pk}/isolation/", "none")
    wanted = {"network": "allowlist", "allow": "*.com", "runtime": "runc", "reason": "it installs packages"}
    refused = owner.post(form["hx-post"], wanted, headers={"HX-Request": "true"})
    assert (refused.status_code, refused["HX-Retarget"]) == (409, "#notice")
    taken = owner.post(form["hx-post"], wanted | {"allow": "example.com"}, headers={"HX-Request": "true"})
    assert (taken.status_code, taken["HX-Redirect"]) == (204, f"/workspaces/{desk.workspace.pk}/")


@pytest.mark.parametrize(("who", "status"), [("outsider", 404), ("viewer", 403), ("operator", 403)])
def test_nobody_else_changes_it(desk: Desk, signed_in: SignIn, who: str, status: int) -> None:
    assert post(signed_in(getattr(desk, who)), desk).status_code == status
    assert Workspace.objects.get(pk=desk.workspace.pk).network == "none"
    page(signed_in(desk.operator).get(f"/workspaces/{desk.workspace.pk}/")).none("#change-isolation")


def test_the_sandbox_is_given_the_stricter_of_choice_and_site(desk: Desk, settings: LazySettings) -> None:
    Workspace.objects.filter(pk=desk.workspace.pk).update(network="open", runtime="runc", driver="local")
    settings.SANDBOX_RUNTIME = "runsc"
    settings.SANDBOX_REACHABLE = ["10.1.0.0/16"]
    spec = sandbox_for(Workspace.objects.get(pk=desk.workspace.pk)).spec
    assert (spec.network.mode, spec.network.reachable, spec.runtime) == ("allowlist", ("10.1.0.0/16",), "runsc")


def test_the_page_says_when_no_node_offers_the_runtime(desk: Desk, signed_in: SignIn, settings: LazySettings) -> None:
    settings.SANDBOX_RUNTIME = "runsc"
    settings.NODES = {"a": "unix:///nowhere"}
    seen.saw("a", "", EngineFacts(2**30, 2, ("runc",), "28"))
    assert "No node offers it" in card(signed_in(desk.owner), desk)
    assert "a: runc" in card(signed_in(desk.owner), desk)
    seen.saw("a", "", EngineFacts(2**30, 2, ("runc", "runsc"), "28"))
    assert "No node" not in card(signed_in(desk.owner), desk)


def test_staff_see_nodes_with_health_and_load(desk: Desk, signed_in: SignIn, settings: LazySettings) -> None:
    settings.NODES = {"a": "unix:///nowhere", "b": "tcp://10.0.0.2:2376", "c": "unix:///x"}
    seen.saw("a", "unix:///nowhere", EngineFacts(8 * 2**30, 4, ("runc", "runsc"), "28.2"))
    seen.missed("b", "tcp://10.0.0.2:2376", "connection refused")
    Workspace.objects.filter(pk=desk.workspace.pk).update(node="a", state="awake", memory_bytes=2 * 2**30)
    Leftover.objects.create(node="b", workspace=desk.workspace, sandbox_key="w-old")
    assert signed_in(desk.owner).get("/nodes/").status_code == 404
    found = page(signed_in(desk.staff).get("/nodes/"))
    rows = [row.get_text(" ", strip=True) for row in found.all("#nodes tbody tr")]
    assert len(rows) == 3
    assert "answers" in rows[0]
    assert "runsc" in rows[0]
    assert "25 %" in rows[0]
    assert "does not answer" in rows[1]
    assert "connection refused" in rows[1]
    assert "not looked at" in rows[2]
    assert desk.workspace.name in found.text("#leftovers")
    Node.objects.filter(name="a").update(failing_since=Node.objects.get(name="b").failing_since)
    assert "does not answer" in card(signed_in(desk.viewer), desk)
