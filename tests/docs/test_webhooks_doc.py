"""The receiver that the docs show takes what we send, and the numbers there are those of the code."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from agentdesk.environment import REPO
from tests.sending import new_secret
from workspaces.actions.sendings import IN_THE_AIR, LEASE
from workspaces.domain.sending import PAUSES_S
from workspaces.domain.webhooks import MessageType, body_text
from workspaces.engine.transports.base import CONNECT_S, KEPT_BYTES, TOTAL_S, Parcel
from workspaces.engine.transports.http import MOST_READ_BYTES
from workspaces.engine.transports.webhook import signed_headers

TEXT = (REPO / "docs/webhooks.md").read_text()
BODY = {"type": "alert.opened.v1", "timestamp": "", "data": {"alert": {"title": "Loop", "url": "https://desk/1"}}}


def test_the_receiver_of_the_docs_takes_a_message_once_and_refuses_another(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert found is not None
    shown: dict[str, Any] = {}
    exec(found[1], shown)
    secret, text = new_secret(), body_text(BODY)
    headers = signed_headers(Parcel("msg_1", "", BODY, "", secrets=(secret,)), text, datetime.now(UTC))
    assert shown["receive"](secret, headers, text.encode()) == 204
    assert shown["receive"](secret, headers, text.encode()) == 204
    assert capsys.readouterr().out == "Loop https://desk/1\n"
    assert shown["receive"](secret, headers, text.encode() + b" ") == 400
    assert shown["receive"](new_secret(), headers, text.encode()) == 400


def test_the_numbers_in_the_docs_are_those_of_the_code() -> None:
    units = {"s": 1, "min": 60, "h": 3600}
    row = next(line for line in TEXT.splitlines() if line.startswith("| pause |"))
    told = [int(number) * units[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", row)]
    assert told == list(PAUSES_S)
    assert set(re.findall(r"^\| `((?:alert|endpoint)\.[a-z0-9.]+)`", TEXT, re.M)) == {one.value for one in MessageType}
    for words in (
        f"A try has {TOTAL_S:g} seconds in all, {CONNECT_S:g} of them to connect",
        f"again after {LEASE.seconds} seconds",
        f"up to {KEPT_BYTES // 1024} KB",
        f"at most {MOST_READ_BYTES // 1024} KB are read",
    ):
        assert words in " ".join(TEXT.split()), words
    assert IN_THE_AIR == 4
