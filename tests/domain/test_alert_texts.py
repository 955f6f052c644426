"""What messages say: bounded, harmless in a chat, never a second line in a header; and what their links may do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from workspaces.domain.action_links import (
    ANSWER_LASTS,
    LASTS,
    Standing,
    expiry,
    filled,
    offered,
    place_of,
    standing,
)
from workspaces.domain.alert_texts import SEVERITY_WORDS, STATE_WORDS, TITLE_CHARS, harmless, slack_body, told_of
from workspaces.domain.alerts import AlertState
from workspaces.domain.endpoints import EndpointLinks, LinkAction
from workspaces.domain.incidents import Severity
from workspaces.domain.mail import address_problem, domain_of, one_line, sender_problem
from workspaces.domain.states import EscalationKind
from workspaces.domain.webhooks import MessageType

NOW = datetime(2026, 12, 1, tzinfo=UTC)
L, S = EndpointLinks, AlertState
A = LinkAction


@pytest.mark.parametrize(
    "address",
    [
        *("", "ann", "ann@", "@example.com", "a b@example.com", "ann@exa mple.com", "ann@example.com\nBcc: all@x.test"),
        *("ann@example.com, ben@example.com", "Ann <ann@example.com>", "ann@-x.test", ".ann@x.test", "a..n@x.test"),
        *("ann@example.com\r", "änn@example.com", "a" * 65 + "@x.test", "ann@" + "x" * 254, "ann@ex\x00.test"),
    ],
)
def test_what_is_no_single_plain_address_is_refused(address: str) -> None:
    assert address_problem(address)


def test_addresses_and_senders_that_are_fine() -> None:
    assert not address_problem("ann.o'neil+alerts@mail.example.com")
    assert not sender_problem("agentdesk <agentdesk@example.com>")
    assert domain_of("agentdesk <agentdesk@Example.com>") == "example.com"
    assert sender_problem("agentdesk\nBcc: all@x.test <a@example.com>")
    assert sender_problem("")


def test_a_header_line_is_one_line() -> None:
    assert one_line("a\r\nBcc: x\u2028y\x00\u202ez", 100) == "a Bcc: x y z"
    assert len(one_line("word " * 100, TITLE_CHARS)) <= TITLE_CHARS


def test_words_from_elsewhere_ping_nobody_and_make_no_link() -> None:
    shown = harmless("<!channel> <@U123> @here @channel [Approve](https://evil.test) [a][b] ```x``` \u202eevil & <b>")
    for mark in ("<", ">", "@h", "@c", "](", "][", "```", "\u202e", "& "):
        assert mark not in shown, mark
    assert "&lt;!channel&gt;" in shown
    assert "&amp; " in shown


def test_a_message_offers_what_the_endpoint_and_the_alert_allow() -> None:
    held = EscalationKind.HELD_CALL
    assert offered(L.NONE, S.OPEN, held) == ()
    assert offered(L.ACKNOWLEDGE, S.OPEN, held) == (A.ACKNOWLEDGE, A.RESOLVE)
    assert offered(L.ANSWER, S.OPEN, held) == (A.APPROVE, A.REJECT, A.ACKNOWLEDGE, A.RESOLVE)
    assert offered(L.ANSWER, S.ACKNOWLEDGED, held) == (A.APPROVE, A.REJECT, A.RESOLVE)
    assert offered(L.ANSWER, S.OPEN, EscalationKind.LIMIT) == (A.ACKNOWLEDGE, A.RESOLVE)
    assert offered(L.ANSWER, S.OPEN, None) == (A.ACKNOWLEDGE, A.RESOLVE)
    assert offered(L.ANSWER, S.RESOLVED, held) == ()


def test_a_link_lasts_as_long_as_what_it_answers() -> None:
    soon, late = NOW + timedelta(hours=1), NOW + timedelta(days=3)
    assert expiry(A.APPROVE, NOW, soon) == soon
    assert expiry(A.REJECT, NOW, late) == NOW + ANSWER_LASTS
    assert expiry(A.ACKNOWLEDGE, NOW, soon) == NOW + LASTS


def test_only_a_link_of_which_nothing_else_holds_is_good() -> None:
    facts = {"used": False, "revoked": False, "expired": False}
    assert standing(**facts) is Standing.GOOD
    for name, told in (
        ("used", Standing.USED),
        ("revoked", Standing.REVOKED),
        ("expired", Standing.EXPIRED),
        ("decided", Standing.DECIDED),
        ("changed", Standing.CHANGED),
    ):
        assert standing(**{**facts, name: True}) is told
    assert standing(**facts, allowed=False, decided=True) is Standing.FORBIDDEN, "who may not is told nothing of it"


def test_only_the_places_of_links_are_filled() -> None:
    place = place_of("a1")
    body: dict[str, Any] = {"type": "t", "data": {"links": {"approve": place, "docs": "https://x"}, "words": place}}
    before = json.dumps(body)
    sent = filled(body, lambda uid: f"https://desk/act/{uid}")
    assert sent["data"] == {"links": {"approve": "https://desk/act/a1", "docs": "https://x"}, "words": place}
    assert json.dumps(body) == before
    assert filled({"type": "t", "data": {}}, str) == {"type": "t", "data": {}}


def test_every_part_of_a_chat_message_stays_within_its_limit() -> None:
    long = "<@U1> & " * 2_000
    alert = {"id": 1, "title": long, "words": long, "severity": "critical", "url": "https://desk/alerts/1/"}
    links = dict.fromkeys(("approve", "reject", "acknowledge", "resolve"), "https://desk/act/x/")
    body = slack_body(told_of("alert.opened.v1", {"alert": alert, "links": links}))
    header, words, buttons = body["blocks"][0], body["blocks"][1], body["blocks"][-1]
    assert len(header["text"]["text"]) <= 150
    assert len(words["text"]["text"]) <= 3_000
    assert [button["url"] for button in buttons["elements"]][-1] == "https://desk/alerts/1/"
    assert len(json.dumps(body)) < 40_000


def test_every_severity_and_every_type_of_message_has_its_words() -> None:
    assert set(SEVERITY_WORDS) == {severity.value for severity in Severity}
    assert set(STATE_WORDS) == {type_.value for type_ in MessageType}
