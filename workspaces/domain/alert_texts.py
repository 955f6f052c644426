"""What a message says to a person: an alert's payload as words, facts and links, for mail and for chats. Pure.

Titles and words come from agents and from what they read: they are told as words, and never ping anybody, never make
a link of their own, never break a line of a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workspaces.domain.mail import one_line
from workspaces.domain.text import clip

TITLE_CHARS = 140
WORDS_CHARS = 2_000
FACT_CHARS = 400
MOST_FACTS = 8
HEADER_CHARS, SECTION_CHARS, FIELD_CHARS = 150, 3_000, 2_000  # of Slack's blocks; a section holds ten fields
MOST_EVIDENCE = 8
SEVERITY_WORDS = {"critical": "CRITICAL", "error": "Error", "warning": "Warning", "info": "Note"}
LINKS_SAY = "Each of these opens a page that shows what it does before it does it:"
STATE_WORDS = {
    "alert.opened.v1": "",
    "alert.updated.v1": "Goes on: ",
    "alert.acknowledged.v1": "Acknowledged: ",
    "alert.resolved.v1": "Resolved: ",
    "endpoint.test.v1": "Test: ",
}
DEED_WORDS = {
    "approve": "Approve…",
    "reject": "Reject…",
    "acknowledge": "Acknowledge…",
    "resolve": "Resolve…",
    "confirm": "Confirm the address…",
}
_ZERO_WIDTH = "\N{ZERO WIDTH SPACE}"
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f]")  # marks that turn the direction of what follows
_WRITTEN = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": f"@{_ZERO_WIDTH}"}  # in a chat
_MADE_LINK = re.compile(r"\](?=[(\[:])")


@dataclass(frozen=True, slots=True)
class Deed:
    """A link that leads to a page on which one thing can be done."""

    action: str
    url: str

    @property
    def label(self) -> str:
        return DEED_WORDS.get(self.action, self.action)


@dataclass(frozen=True, slots=True)
class Told:
    """One message. `url`: the page of what it tells of. `thread`: the same for all messages of one alert."""

    title: str
    words: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    deeds: tuple[Deed, ...] = ()
    url: str = ""
    thread: str = ""
    deeds_say: str = LINKS_SAY


def told_of(type_: str, data: Mapping[str, Any]) -> Told:
    """`data`: of a delivery's body (domain/webhooks.py), the places of its links filled."""
    alert: Mapping[str, Any] = data.get("alert") or {}
    if not alert:
        return _test_told(type_, data)
    said = STATE_WORDS.get(type_) or f"{SEVERITY_WORDS.get(alert.get('severity', ''), 'Alert')}: "
    links: Mapping[str, Any] = data.get("links") or {}
    return Told(
        title=one_line(said + str(alert.get("title", "")), TITLE_CHARS),
        words=clip(str(alert.get("resolution") or alert.get("words") or "").strip(), WORDS_CHARS),
        facts=_facts(alert, data.get("change") or {}),
        evidence=_evidence(data.get("evidence") or ()),
        deeds=tuple(Deed(action, str(links[action])) for action in DEED_WORDS if links.get(action)),
        url=str(alert.get("url", "")),
        thread=f"alert-{alert.get('id')}",
    )


def _test_told(type_: str, data: Mapping[str, Any]) -> Told:
    endpoint: Mapping[str, Any] = data.get("endpoint") or {}
    facts = [("Endpoint", endpoint.get("name")), ("Sent by", data.get("sent_by"))]
    return Told(
        title=one_line(STATE_WORDS.get(type_, "") + str(data.get("message", "")), TITLE_CHARS),
        facts=_written(facts),
        url=str(endpoint.get("url", "")),
    )


def _facts(alert: Mapping[str, Any], change: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    rule: Mapping[str, Any] = alert.get("rule") or {}
    troubles, active = alert.get("troubles", 0), alert.get("active", 0)
    many = f"{troubles:,}, of which {active:,} go on" if isinstance(troubles, int) and troubles > 1 else ""
    again = f"{alert['reopened']} times" if alert.get("reopened") else ""
    return _written(
        [
            ("Rule", rule.get("name")),
            ("Since", _time(alert.get("began_at"))),
            ("Troubles", many),
            ("Opened again", again),
            ("Acknowledged by", alert.get("acknowledged_by")),
            ("Resolved by", alert.get("resolved_by")),
            ("What changed", change.get("words") if change.get("words") != alert.get("words") else ""),
        ]
    )


def _written(facts: Sequence[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, one_line(str(value), FACT_CHARS)) for label, value in facts if value)[:MOST_FACTS]


def _time(text: Any) -> str:
    """As people read it: "2026-12-01 10:05 UTC"."""
    return f"{text[:10]} {text[11:16]} UTC" if isinstance(text, str) and len(text) >= 16 else ""


def _evidence(found: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    kept = []
    for item in found[:MOST_EVIDENCE]:
        name = f"{item.get('type', '')} {item.get('id', '')}".strip()
        title = one_line(str(item.get("title") or ""), 120)
        kept.append((f"{name}: {title}" if title else name, str(item.get("url", ""))))
    return tuple(kept)


def plain(told: Told) -> str:
    """The message as plain text, for mail."""
    parts = [told.title]
    if told.words:
        parts.append(told.words)
    if told.facts:
        parts.append("\n".join(f"{label}: {value}" for label, value in told.facts))
    if told.url:
        parts.append(f"Open it in agentdesk: {told.url}")
    if told.evidence:
        parts.append("\n".join(["Evidence:", *(f"- {label}: {url}" for label, url in told.evidence)]))
    if told.deeds:
        lines = [f"- {deed.label.rstrip('…')}: {deed.url}" for deed in told.deeds]
        parts.append("\n".join([told.deeds_say, *lines]))
    return "\n\n".join(parts) + "\n"


def slack_body(told: Told) -> dict[str, Any]:
    """The JSON of an incoming webhook as Slack takes it: blocks for Slack, `text` for those who know no blocks.

    `text` is written in marks (mrkdwn), so what comes from elsewhere is made harmless in it; in blocks such words
    are plain text objects, in which nothing is a mark.
    """
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain_text(told.title, HEADER_CHARS)}]
    if told.words:
        blocks.append({"type": "section", "text": _plain_text(told.words, SECTION_CHARS)})
    if told.facts:
        fields = [_plain_text(f"{label}: {value}", FIELD_CHARS) for label, value in told.facts]
        blocks.append({"type": "section", "fields": fields})
    if told.evidence:
        links = "\n".join(f"• {_link(url, label)}" for label, url in told.evidence)
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": links}})
    buttons = [_button(deed.label, deed.url, deed.action) for deed in told.deeds]
    if told.url:
        buttons.append(_button("Open", told.url, "open"))
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return {"text": _marked(told), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def harmless(text: str) -> str:
    """Words from elsewhere for a text in marks: no mention, no link of their own, no turned direction."""
    text = "".join(_WRITTEN.get(char, char) for char in _TURNS.sub("", text)).replace(
        "```", f"`{_ZERO_WIDTH}`{_ZERO_WIDTH}`"
    )
    return _MADE_LINK.sub(f"]{_ZERO_WIDTH}", text)


def _marked(told: Told) -> str:
    lines = [f"*{harmless(told.title)}*"]
    if told.words:
        lines.append(harmless(told.words))
    lines += [f"{label}: {harmless(value)}" for label, value in told.facts]
    lines += [f"• {_link(url, label)}" for label, url in told.evidence]
    deeds = [_link(deed.url, deed.label) for deed in told.deeds]
    if told.url:
        deeds.append(_link(told.url, "Open"))
    if deeds:
        lines.append(" · ".join(deeds))
    return "\n".join(lines)


def _plain_text(text: str, limit: int) -> dict[str, Any]:
    """`limit`: of what is sent, in which a character may have become five."""
    room, kept = limit - 1, []
    for char in _TURNS.sub("", text):
        written = _WRITTEN.get(char, char)
        room -= len(written)
        if room < 0:
            kept.append("…")
            break
        kept.append(written)
    return {"type": "plain_text", "text": "".join(kept), "emoji": False}


def _link(url: str, label: str) -> str:
    url = url.replace("&", "&amp;").replace("<", "%3C").replace(">", "%3E").replace("|", "%7C")
    return f"<{url}|{harmless(label).replace('|', '¦')}>"


def _button(label: str, url: str, action: str) -> dict[str, Any]:
    button: dict[str, Any] = {
        "type": "button",
        "text": {"type": "plain_text", "text": label, "emoji": False},
        "url": url,
        "action_id": action,
    }
    if action == "approve":
        button["style"] = "primary"
    if action == "reject":
        button["style"] = "danger"
    return button
