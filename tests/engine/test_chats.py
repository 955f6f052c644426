"""Chats get what Slack's incoming webhooks take, by the same guarded way as webhooks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.tools.http_server import RawServer, http
from workspaces.domain.endpoints import AttemptOutcome
from workspaces.engine.transports import NotSent, Parcel
from workspaces.engine.transports.slack import Slack

TOKEN = "https://desk.example/act/0123456789abcdef0123456789abcdef.SIGNATURE-of-it/"
BODY: dict[str, Any] = {
    "type": "alert.opened.v1",
    "timestamp": "2026-12-01T10:05:00.000Z",
    "data": {
        "alert": {
            "id": 7,
            "url": "https://desk.example/alerts/7/",
            "severity": "warning",
            "title": "Loop <!channel> & more",
            "words": "@here it goes on, [Approve](https://evil.test)",
            "rule": {"id": 1, "name": "Loops"},
            "began_at": "2026-12-01T10:00:00.000Z",
            "troubles": 40,
            "active": 39,
        },
        "change": {"words": ""},
        "evidence": [{"type": "incident", "id": 3, "url": "https://desk.example/incidents/3/", "title": "a|b"}],
        "links": {"acknowledge": TOKEN},
    },
}


def send(server: RawServer, path: str, private: tuple[str, ...] = ("127.0.0.0/8",)) -> Any:
    parcel = Parcel("msg_1", BODY["type"], BODY, server.url(path), tokens=(TOKEN,), private=private)
    return asyncio.run(Slack().send(parcel))


def test_a_chat_gets_text_and_blocks_with_buttons_and_nobody_is_pinged() -> None:
    server = RawServer(hook=http(200, b"ok " + TOKEN.encode()), gone=http(404, b"no_service"))
    try:
        answer = send(server, "hook")
        with pytest.raises(NotSent) as refused:
            send(server, "gone")
        with pytest.raises(NotSent) as forbidden:
            send(server, "hook", private=())
    finally:
        server.close()
    assert answer.status == 200
    assert "SIGNATURE" not in str(answer), "what comes back of a token is not kept"
    assert (refused.value.outcome, refused.value.heard.status) == (AttemptOutcome.REFUSED, 404)
    assert forbidden.value.outcome is AttemptOutcome.FORBIDDEN
    head, _, latin = server.seen[0].partition("\n\n")
    raw = latin.encode("latin-1").decode()
    assert "content-type: application/json" in head.lower()
    body = json.loads(raw)
    kinds = [block["type"] for block in body["blocks"]]
    assert kinds == ["header", "section", "section", "section", "actions"]
    header, words, facts, evidence, buttons = body["blocks"]
    assert header["text"]["text"] == "Warning: Loop &lt;!channel&gt; &amp; more"
    assert header["text"]["type"] == words["text"]["type"] == "plain_text"
    assert {"Rule: Loops", "Since: 2026-12-01 10:00 UTC", "Troubles: 40, of which 39 go on"} == {
        one["text"] for one in facts["fields"]
    }
    assert evidence["text"]["text"] == "• <https://desk.example/incidents/3/|incident 3: a¦b>"
    assert [(one["text"]["text"], one["url"]) for one in buttons["elements"]] == [
        ("Acknowledge…", TOKEN),
        ("Open", "https://desk.example/alerts/7/"),
    ]
    assert "@here" not in raw
    assert "<!channel>" not in raw
    assert "](https" not in body["text"]
    assert f"<{TOKEN}|Acknowledge…>" in body["text"]
