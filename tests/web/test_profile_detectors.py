"""A profile's detectors on the desk: the usual numbers, what is wrong with others, and what differs."""

from __future__ import annotations

import pytest

from tests.web.pages import page
from tests.web.people import Desk
from tests.web.test_profiles import SignIn, form
from workspaces.models import ProfileVersion
from workspaces.web.detectors import WORDS, defaults

pytestmark = pytest.mark.django_db


def test_the_usual_numbers_stand_beside_the_field(desk: Desk, signed_in: SignIn) -> None:
    found = page(signed_in(desk.operator).get("/profiles/new/"))
    told = found.text("#detector-defaults")
    for row in defaults():
        assert row.name in told
    assert {row.name for row in defaults()} == set(WORDS)


def test_what_differs_is_kept_and_shown_and_begins_the_next_version(desk: Desk, signed_in: SignIn) -> None:
    client = signed_in(desk.operator)
    response = client.post("/profiles/new/", form(desk, detectors="same_error: 5\nladder: {nudges: 2}\nclaims: hold\n"))
    assert response.status_code == 302, page(response).text("main")
    version = ProfileVersion.objects.get(profile__name="Reviewer")
    assert version.detectors == {"same_error": 5, "ladder": {"nudges": 2}, "claims": "hold"}
    shown = page(client.get(f"/profiles/{version.profile_id}/")).text("main")
    for words in ("same_error: 5", "nudges: 2", "claims: hold"):
        assert words in shown
    again = client.get(f"/profiles/{version.profile_id}/new-version/").content.decode()
    assert "same_error" in again.split('id="id_detectors"')[1].split("</textarea>")[0]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("no_such: 3", "no_such"),
        ("ladder: {nudges: -1}", "from 0 (never) to 100"),
        ("claims: block", "off, record, hold"),
        ("[1, 2]", "one object"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(
    desk: Desk, signed_in: SignIn, typed: str, words: str
) -> None:
    response = signed_in(desk.operator).post("/profiles/new/", form(desk, detectors=typed))
    assert response.status_code == 422
    found = page(response)
    assert words in found.text("main")
    assert typed in response.content.decode()
