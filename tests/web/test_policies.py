"""Policies on the desk: written with a profile, shown readably, tried on past calls before they are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.harness import make_workspace, scripted_profile, work
from tests.web.pages import Page, page, words
from tests.web.people import Desk
from tests.web.test_profiles import form
from workspaces.actions.errors import Refused
from workspaces.actions.profiles import add_version
from workspaces.models import AuditEntry, Event, ProfileVersion, Task, ToolCall, User

pytestmark = pytest.mark.django_db(transaction=True)

SignIn = Callable[[User], Client]
POLICY = """
- name: large
  tool: send_*
  arguments: [{path: $.amount, min: 1000}]
  verdict: hold
  approver: two_persons
  expires_s: 3600
  on_expiry: escalate
  words: Look twice.
- {name: small, tool: send_invoice, verdict: allow}
- {tool: query, result: {empty: true}, class: error}
"""


def try_it(client: Client, **typed: Any) -> Any:
    return client.post("/profiles/try-policy/", typed, headers={"HX-Request": "true"})


def rows(found: Page) -> list[list[str]]:
    return [[words(cell) for cell in row.select("td")] for row in found.all("#policy-trial tbody tr")]


def test_a_policy_is_saved_with_a_version_shown_readably_and_begins_the_next(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    assert client.post("/profiles/new/", form(desk, policy=POLICY)).status_code == 302
    version = ProfileVersion.objects.get(profile__name="Reviewer")
    assert [rule.get("name") for rule in version.policy] == ["large", "small", None]
    shown = page(client.get(f"/profiles/{version.profile_id}/"))
    large, small, named, otherwise = [words(item) for item in shown.all("#policy li")]
    assert "$.amount is at least 1000" in large
    assert "two persons, within 1 h" in large
    assert "then an owner" in large
    assert "allow" in small
    assert "where the result $ is empty" in named
    assert "irreversible call is held" in otherwise
    again = page(client.get(f"/profiles/{version.profile_id}/new-version/")).one("#id_policy").get_text()
    saved = client.post(f"/profiles/{version.profile_id}/new-version/", form(desk, policy=again, keep_key="on"))
    assert saved.status_code == 302
    assert ProfileVersion.objects.get(profile_id=version.profile_id, number=2).policy == version.policy


def test_a_policy_that_is_wrong_is_refused_by_rule_and_field_and_kept_as_typed(desk: Desk, signed_in: SignIn) -> None:
    typed = "- {tool: x, verdict: maybe}\n- {verdict: hold}\n- {verdict: hold, approver: boss}"
    response = signed_in(desk.operator).post("/profiles/new/", form(desk, policy=typed))
    assert response.status_code == 422
    found = page(response)
    said = found.text("#part-policy ~ * .field, section[aria-labelledby=part-policy] .field")
    assert "rule 1, verdict: must be one of allow, hold, correct" in said
    assert "rule 3, approver" in said
    assert found.one("#id_policy").get_text().strip() == typed
    assert not ProfileVersion.objects.filter(profile__name="Reviewer").exists()
    with pytest.raises(Refused, match="rule 1, verdict"):
        add_version(desk.version.profile, actor=desk.owner, provider="scripted", model="x", policy=[{}])


def test_a_typed_policy_is_tried_on_past_calls_and_changes_nothing(desk: Desk, signed_in: SignIn) -> None:
    desk.held_call()
    before = (Event.objects.count(), AuditEntry.objects.count(), list(ToolCall.objects.values()))
    client = signed_in(desk.operator)
    found = page(try_it(client, policy=POLICY, profile_id=desk.version.profile_id, trial_calls="profile"))
    assert "Of the newest 1 call" in found.text("#policy-trial")
    assert "1 would be judged otherwise" in found.text("#policy-trial")
    ((call, was, would, by),) = rows(found)
    assert "send_invoice" in call
    assert '"amount": 10' in call
    assert (was, would, by) == ("hold", "allow", "rule 2 (small)")
    same = page(try_it(client, policy="", profile_id=desk.version.profile_id, trial_calls="profile"))
    assert "0 would be judged otherwise" in same.text("#policy-trial")
    two = POLICY.replace("1000", "10")
    assert rows(page(try_it(client, policy=two)))[0][1:] == ["hold", "hold two persons", "rule 1 (large)"]
    assert (Event.objects.count(), AuditEntry.objects.count(), list(ToolCall.objects.values())) == before


def test_what_changes_stands_first_and_what_was_typed_wrong_is_said(desk: Desk, signed_in: SignIn) -> None:
    scenario = """
    replies:
      - calls:
          - {name: shell, arguments: {command: "echo no rows"}}
          - {name: shell, arguments: {command: "echo fine"}}
          - {name: no_such, arguments: {}}
      - calls: [{name: finish, arguments: {summary: done}}]
    """
    desk.version = scripted_profile(desk.owner, scenario)
    work(desk.task(hold=False))
    client = signed_in(desk.operator)
    typed = "- {tool: shell, arguments: [{path: $.command, glob: '*fine*'}], verdict: correct, words: never}\n" \
            "- {tool: shell, result: {regex: no rows}, class: empty}"  # fmt: skip
    found = page(try_it(client, policy=typed, trial_calls=desk.workspace.pk))
    tried = rows(found)
    assert [("fine" in row[0], "no rows" in row[0]) for row in tried] == [(True, False), (False, True), (False, False)]
    assert tried[0][1:] == ["allow", "correct", "rule 1"]
    assert tried[1][1:] == ["allow result ok", "allow result empty", "no rule result by rule 2"]
    assert "1 more did not fit" in found.text("#policy-trial")
    wrong = page(try_it(client, policy="- {verdict: x}"))
    assert "rule 1, verdict" in wrong.text("#policy-trial .notice-error")
    assert "neither JSON nor YAML" in page(try_it(client, policy="- {")).text("#policy-trial .notice-error")


def test_a_policy_is_tried_only_on_calls_that_the_person_can_see(desk: Desk, signed_in: SignIn) -> None:
    desk.held_call()
    outside = signed_in(desk.outsider)
    assert try_it(outside, policy=POLICY).status_code == 403
    viewer = signed_in(desk.viewer)
    assert try_it(viewer, policy=POLICY).status_code == 403
    make_workspace(desk.outsider)
    assert "No past call" in page(try_it(outside, policy=POLICY)).text("#policy-trial")
    assert try_it(outside, policy=POLICY, trial_calls=desk.workspace.pk).status_code == 404
    assert signed_in(desk.operator).get("/profiles/try-policy/").status_code == 405
    assert Task.objects.count() == 1
