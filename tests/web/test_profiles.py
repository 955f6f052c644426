"""Profiles: who may make and change one, keys that never come out, refusals that keep the rest, and the check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.web.pages import page
from tests.web.people import Desk
from workspaces.models import AgentProfile, ProfileVersion, User

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
KEY = "sk-live-0123456789abcdefWXYZ"


def form(desk: Desk, **changes: Any) -> dict[str, Any]:
    fields = {
        "name": "Reviewer",
        "place": desk.workspace.pk,
        "provider": "openai",
        "base_url": "https://llm.example.org/v1",
        "api_key": KEY,
        "model": "big-model",
        "system_prompt": "Be terse.",
        "tools": ["shell", "finish"],
        "max_output_tokens": 4096,
        "context_window_tokens": 128_000,
        "max_steps": 50,
        "model_timeout_s": 60,
        "approval_expires_s": 3600,
        "keep_last": 20,
        "keep_every": 5,
        "input_usd_per_mtok": "0.25",
    }
    return fields | changes


def made(desk: Desk, signed_in: SignIn) -> ProfileVersion:
    response = signed_in(desk.operator).post("/profiles/new/", form(desk))
    assert response.status_code == 302, page(response).text("main")
    return ProfileVersion.objects.get(profile__name="Reviewer")


def test_an_operator_makes_a_profile_and_its_key_is_never_shown(desk: Desk, signed_in: SignIn) -> None:
    version = made(desk, signed_in)
    assert version.key is not None
    assert version.key.open() == KEY
    assert (version.keep_last, version.keep_every) == (20, 5)
    assert (version.number, version.max_steps, str(version.input_usd_per_mtok)) == (1, 50, "0.250000000")
    client = signed_in(desk.operator)
    for path in ("/profiles/", f"/profiles/{version.profile_id}/", f"/profiles/{version.profile_id}/new-version/"):
        html = client.get(path).content.decode()
        assert KEY not in html
        assert "key …WXYZ" in html


def test_outsiders_find_no_profile_of_a_workspace(desk: Desk, signed_in: SignIn) -> None:
    profile = made(desk, signed_in).profile_id
    outside = signed_in(desk.outsider)
    assert outside.get(f"/profiles/{profile}/").status_code == 404
    assert outside.get(f"/profiles/{profile}/new-version/").status_code == 404
    assert "Reviewer" not in page(outside.get("/profiles/")).text("main")


def test_a_viewer_reads_a_profile_and_changes_none(desk: Desk, signed_in: SignIn) -> None:
    profile = made(desk, signed_in).profile_id
    viewer = signed_in(desk.viewer)
    page(viewer.get(f"/profiles/{profile}/")).none(f"a[href='/profiles/{profile}/new-version/']")
    assert viewer.post(f"/profiles/{profile}/new-version/", form(desk)).status_code == 403
    assert viewer.post("/profiles/new/", form(desk, name="Mine")).status_code == 403
    assert ProfileVersion.objects.filter(profile_id=profile).count() == 1


def test_only_staff_make_profiles_for_the_site(desk: Desk, signed_in: SignIn) -> None:
    assert signed_in(desk.operator).post("/profiles/new/", form(desk, place="site")).status_code == 422
    assert signed_in(desk.staff).post("/profiles/new/", form(desk, place="site")).status_code == 302
    profile = AgentProfile.objects.get(name="Reviewer")
    assert profile.workspace is None
    assert signed_in(desk.owner).get(f"/profiles/{profile.pk}/new-version/").status_code == 403


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("base_url", "ftp://host/v1", "https://"),
        ("base_url", "javascript:alert(1)", "https://"),
        ("base_url", "https://user:secret@host/v1", "No name or password"),
        ("base_url", "https://host/v1?key=1", "after ?"),
        ("base_url", "http://[::1", "not an address"),
        ("model", "", "Name the model"),
        ("max_steps", "0", "greater than or equal to 1"),
        ("keep_last", "0", "greater than or equal to 1"),
        ("declared_tools", "[{", "neither JSON nor YAML at line"),
        ("declared_tools", "name: x", "a list of tools"),
        ("declared_tools", "- {name: x, description: d, effect: huge, command: c}", "effect"),
        ("declared_tools", "- {name: shell, description: d, effect: none, command: c}", "already a tool"),
        ("declared_tools", "- &a [1]\n- *a", "aliases"),
        ("declared_tools", "- .nan", "cannot be read"),
        ("options", "[1]", "one object"),
        ("context_policy", "{keep_recents: 3}", "There is no setting"),
        ("context_policy", "{start_at: 0.5, target: 0.6}", "smaller than start_at"),
        ("context_policy", "{keep_recent: 0}", "a whole number from 1"),
        ("context_policy", "{summarise: maybe}", "true or false"),
        ("options", '{"a": ' + "[" * 300 + "]" * 300 + "}", "cannot be read"),
        ("input_usd_per_mtok", "99999999999", "less than or equal to"),
        ("name", " ", "Give the profile a name"),
    ],
)
def test_a_refused_form_keeps_everything_but_the_key(
    desk: Desk, signed_in: SignIn, field: str, value: str, told: str
) -> None:
    response = signed_in(desk.operator).post("/profiles/new/", form(desk, **{field: value}))
    assert response.status_code == 422
    got = page(response)
    assert told in " ".join(tag.get_text() for tag in got.all("ul.errors li"))
    assert got.text("#id_system_prompt") == "Be terse."
    assert [tag["value"] for tag in got.all("input[name=tools][checked]")] == ["shell", "finish"]
    assert KEY not in response.content.decode()
    assert not AgentProfile.objects.filter(name="Reviewer").exists()


def test_a_context_policy_is_taken_shown_and_carried_into_the_next_version(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    policy = "{start_at: 0.7, target: 0.5, summarise: false}"
    assert client.post("/profiles/new/", form(desk, context_policy=policy)).status_code == 302
    version = ProfileVersion.objects.get(profile__name="Reviewer")
    assert version.context_policy == {"start_at": 0.7, "target": 0.5, "summarise": False}
    assert "0.7" in page(client.get(f"/profiles/{version.profile_id}/")).text("#context-policy")
    next_form = page(client.get(f"/profiles/{version.profile_id}/new-version/"))
    assert '"summarise": false' in next_form.text("#id_context_policy")


def test_declared_tools_are_taken_as_yaml(desk: Desk, signed_in: SignIn) -> None:
    declared = "- name: deploy\n  description: Deploys.\n  effect: irreversible\n  command: ./deploy\n"
    assert signed_in(desk.operator).post("/profiles/new/", form(desk, declared_tools=declared)).status_code == 302
    assert ProfileVersion.objects.get(profile__name="Reviewer").declared_tools == [
        {"name": "deploy", "description": "Deploys.", "effect": "irreversible", "command": "./deploy"}
    ]


def test_a_scenario_has_to_be_one(desk: Desk, signed_in: SignIn) -> None:
    scripted = form(desk, provider="scripted", base_url="", api_key="", model="scripted")
    client = signed_in(desk.operator)
    assert client.post("/profiles/new/", scripted).status_code == 422
    bad = client.post("/profiles/new/", scripted | {"scenario_text": "replies: 5"})
    assert "replies" in page(bad).text("ul.errors")
    assert client.post("/profiles/new/", scripted | {"scenario": "hello"}).status_code == 302
    assert ProfileVersion.objects.get(profile__name="Reviewer").provider_options == {"scenario": "hello"}


def test_a_new_version_keeps_the_key_and_leaves_the_old_one(desk: Desk, signed_in: SignIn) -> None:
    first = made(desk, signed_in)
    changed = form(desk, api_key="", keep_key="on", model="bigger-model")
    path = f"/profiles/{first.profile_id}/new-version/"
    assert signed_in(desk.operator).post(path, changed).status_code == 302
    second = ProfileVersion.objects.get(profile=first.profile_id, number=2)
    assert (second.model, second.key_id) == ("bigger-model", first.key_id)
    first.refresh_from_db()
    assert first.model == "big-model"


def test_a_key_does_not_follow_to_another_address(desk: Desk, signed_in: SignIn) -> None:
    first = made(desk, signed_in)
    moved = form(desk, api_key="", keep_key="on", base_url="https://evil.example/v1")
    client = signed_in(desk.operator)
    refused = client.post(f"/profiles/{first.profile_id}/new-version/", moved)
    assert refused.status_code == 422
    assert "address changed" in page(refused).text("ul.errors")
    checked = client.post("/profiles/check/", moved | {"profile_id": first.profile_id})
    assert "address changed" in page(checked).text("#check-result")


def test_the_check_tells_an_address_that_does_not_answer(desk: Desk, signed_in: SignIn) -> None:
    response = signed_in(desk.operator).post("/profiles/check/", form(desk, base_url="http://127.0.0.1:9/v1"))
    assert response.status_code == 200
    told = page(response).text("#check-result")
    assert "does not work" in told
    assert "cannot be reached" in told
    assert KEY not in told


def test_the_check_plays_a_scenario_and_refuses_a_bad_address(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    good = client.post("/profiles/check/", form(desk, provider="scripted", scenario="hello"))
    assert page(good).text("#check-result").startswith("works")
    bad = client.post("/profiles/check/", form(desk, base_url="ftp://x"))
    assert "Not asked" in page(bad).text("#check-result")


def test_the_check_is_a_post_of_somebody_who_may_make_profiles(desk: Desk, signed_in: SignIn) -> None:
    assert signed_in(desk.operator).get("/profiles/check/").status_code == 405
    assert signed_in(desk.outsider).post("/profiles/check/", form(desk)).status_code == 403


# ---- extra request headers are as secret as the key

TOKEN = "gateway-token-0123456789"
WITH_HEADERS = 'headers: {X-Gateway: "' + TOKEN + '", X-Team: desk}\nextra_body: {seed: 1}'


def test_header_values_are_sealed_and_never_shown(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    client.post("/profiles/new/", form(desk, options=WITH_HEADERS))
    version = ProfileVersion.objects.get(profile__name="Reviewer")
    assert version.opened_options() == {
        "headers": {"X-Gateway": TOKEN, "X-Team": "desk"},
        "extra_body": {"seed": 1},
    }
    assert version.headers is not None
    assert TOKEN.encode() not in bytes(version.headers.sealed)
    assert TOKEN not in str(ProfileVersion.objects.filter(pk=version.pk).values().get())
    for who in (desk.viewer, desk.operator):
        shown = signed_in(who).get(f"/profiles/{version.profile_id}/").content.decode()
        assert "X-Gateway" in shown
        assert TOKEN not in shown
    assert TOKEN not in client.get(f"/profiles/{version.profile_id}/new-version/").content.decode()


def test_kept_header_values_go_on_in_the_next_version_for_the_same_address(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    client.post("/profiles/new/", form(desk, options=WITH_HEADERS))
    first = ProfileVersion.objects.get(profile__name="Reviewer")
    path = f"/profiles/{first.profile_id}/new-version/"
    begun = page(client.get(path)).one("#id_options").get_text()
    assert "(kept)" in begun
    assert client.post(path, form(desk, options=begun, model="bigger")).status_code == 302
    second = ProfileVersion.objects.get(profile=first.profile, number=2)
    assert second.opened_options() == first.opened_options()
    stolen = client.post(path, form(desk, options=begun, base_url="https://mine.example/v1"))
    assert stolen.status_code == 422
    assert "type the value of the header X-" in page(stolen).text("ul.errors")
    unknown = client.post(path, form(desk, options='{"headers": {"X-New": "(kept)"}}'))
    assert "no header X-New" in page(unknown).text("ul.errors")
    strange = client.post(path, form(desk, options='{"headers": {"X-New": ["a"]}}'))
    assert "one object of names and texts" in page(strange).text("ul.errors")
    assert first.profile.versions.count() == 2


def test_the_check_sends_kept_header_values_only_to_their_own_address(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    client.post("/profiles/new/", form(desk, options=WITH_HEADERS))
    first = ProfileVersion.objects.get(profile__name="Reviewer")
    kept = '{"headers": {"X-Gateway": "(kept)"}}'
    elsewhere = form(desk, options=kept, base_url="http://127.0.0.1:9/v1", profile_id=str(first.profile_id))
    answer = page(client.post("/profiles/check/", elsewhere, HTTP_HX_REQUEST="true"))
    assert "Not asked" in answer.soup.get_text()


HTTP = """{"allow": ["api.example.com", "b.example.com"], "headers": {"api.example.com": {"Authorization": "%s"}}}"""


def test_keys_of_http_requests_are_sealed_and_stay_with_their_host(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    assert client.post("/profiles/new/", form(desk, http=HTTP % KEY)).status_code == 302
    first = ProfileVersion.objects.get(profile__name="Reviewer")
    assert first.http["headers"] == {"api.example.com": {"Authorization": "(kept)"}}
    assert first.opened_tools()[0]["headers"] == {"api.example.com": {"Authorization": KEY}}
    path = f"/profiles/{first.profile_id}/new-version/"
    for shown in (path, f"/profiles/{first.profile_id}/"):
        html = client.get(shown).content.decode()
        assert KEY not in html
        assert "(kept)" in html
    assert client.post(path, form(desk, http=HTTP % "(kept)", keep_key="on", api_key="")).status_code == 302
    second = ProfileVersion.objects.get(profile=first.profile, number=2)
    assert second.opened_tools()[0]["headers"] == {"api.example.com": {"Authorization": KEY}}
    moved = (HTTP % "(kept)").replace('{"api.', '{"b.')
    refused = client.post(path, form(desk, http=moved))
    assert refused.status_code == 422
    assert "there is none to be kept for this place" in page(refused).text("main")
    assert "b.example.com" in page(refused).one("#id_http").text
    wrong = client.post(path, form(desk, http='{"allow": ["*.com"]}'))
    assert "allows too much" in page(wrong).text("main")


def test_a_fallback_is_chosen_shown_and_refused_where_it_has_one_itself(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    other = made(desk, signed_in)
    policy = {"fallback": other.pk, "fallback_wait_s": 30, "fallback_on_open": "on"}
    refused = client.post("/profiles/new/", form(desk, name="Never", fallback=other.pk))
    assert "never used" in page(refused).text("main")
    assert client.post("/profiles/new/", form(desk, name="Second", **policy)).status_code == 302
    second = ProfileVersion.objects.get(profile__name="Second")
    assert second.fallback == {"profile_version": other.pk, "when_wait_over_s": 30, "on_circuit_open": True}
    shown = page(client.get(f"/profiles/{second.profile_id}/")).text("#fallback")
    assert "Reviewer v1" in shown
    assert "longer than 30 s" in shown
    next_form = page(client.get(f"/profiles/{second.profile_id}/new-version/"))
    assert next_form.one("#id_fallback option[selected]")["value"] == str(other.pk)
    third = client.post("/profiles/new/", form(desk, name="Third", **(policy | {"fallback": second.pk})))
    assert "cannot be the fallback" in page(third).text("main"), "a fallback has no fallback"
    again = client.post(f"/profiles/{other.profile_id}/new-version/", form(desk, **policy))
    assert "cannot be the fallback" in page(again).text("main"), "a profile is not its own"
