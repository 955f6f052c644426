"""The trace: what a row says, its pages and filters, and the whole of what is cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.pages import Page, page, words
from tests.web.people import Desk
from tests.web.worked import finished_task, with_many_events
from workspaces.domain.events import EventKind
from workspaces.models import Event, ModelCall, ToolCall
from workspaces.queries.trace import KINDS_OF_GROUP, CurrentLine, KindGroup
from workspaces.web.trace_rows import diff_lines, row_of

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def row_with(seen: Page, kind: str, number: int = 0) -> str:
    """The words of the number-th row of that kind, newest first."""
    rows = [row for row in seen.all(".event") if row.select(f'[title$=": {kind}"]')]
    return words(rows[number])


def whole(client: Any, task_id: int) -> Page:
    """Every row of the task, by following the pages as a scroll does."""
    html, address = b"", f"/tasks/{task_id}/trace/"
    while address:
        response = client.get(address, **HX)
        html += response.content
        more = page(response).all("#trace-more a")
        address = str(more[0]["hx-get"]) if more else ""
    return Page(html)


def test_rows_say_what_happened_with_its_evidence(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seen = whole(signed_in(desk.viewer), task.pk)
    assert "write_file" in row_with(seen, "call.judged", -1)
    corrected = next(words(row) for row in seen.all(".event") if "wrte_file" in words(row) and "correct" in words(row))
    assert "write_file" in corrected, "the nearest real name is the evidence"
    assert "hello.txt says two" in row_with(seen, "task.succeeded")
    assert "first, second" in row_with(seen, "note.written")
    assert [words(line) for line in seen.all(".diff-add")] == ["+two"]
    assert [words(line) for line in seen.all(".diff-del")] == ["-one"]
    assert "I begin with a file." in row_with(seen, "model.replied", -1)


def test_pages_join_without_gap_or_double(desk: Desk, signed_in: Any) -> None:
    task = with_many_events(desk.task(), 200)
    seen = whole(signed_in(desk.viewer), task.pk)
    assert [int(str(row["data-seq"])) for row in seen.all(".event")] == list(range(task.last_seq, 0, -1))


@pytest.mark.parametrize("group", list(KindGroup))
def test_a_filter_shows_its_kinds_only(desk: Desk, signed_in: Any, group: KindGroup) -> None:
    task = finished_task(desk)
    seen = whole_of_group(signed_in(desk.viewer), task.pk, group)
    wanted = set(Event.objects.filter(task=task, kind__in=KINDS_OF_GROUP[group]).values_list("seq", flat=True))
    assert {int(str(row["data-seq"])) for row in seen.all(".event")} == wanted


def whole_of_group(client: Any, task_id: int, group: KindGroup) -> Page:
    return page(client.get(f"/tasks/{task_id}/trace/?group={group.value}", **HX))


def test_every_kind_of_event_belongs_to_one_filter_and_has_a_look() -> None:
    named = [kind for kinds in KINDS_OF_GROUP.values() for kind in kinds]
    assert sorted(named) == sorted(kind.value for kind in EventKind)
    for kind in EventKind:
        event = Event(task_id=1, seq=1, branch_number=1, kind=kind.value, data={})
        assert row_of(event, CurrentLine({1: None})).words != kind.value, "words, not a name from the code"


def test_nonsense_in_the_address_is_no_error(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    client = signed_in(desk.viewer)
    for query in (
        "before=x",
        "before=-1",
        "before=٣",
        "before=99999999999999999999",
        "group=zzz",
        "branch=-",
        "at=\x00",
    ):
        assert client.get(f"/tasks/{task.pk}/?{query}").status_code == 200, query


def test_the_whole_of_a_cut_result_can_be_read(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    call = ToolCall.objects.get(task=task, name="shell")
    client = signed_in(desk.viewer)
    seen = whole(client, task.pk)
    link = next(a for a in seen.all("a") if a.get("href") == f"/tasks/{task.pk}/calls/{call.pk}/")
    assert page(client.get(str(link["hx-get"]), **HX)).one("pre").get_text() == call.result
    plain = client.get(str(link["href"]))
    assert plain["Content-Type"].startswith("text/plain")
    assert plain.content.decode() == call.result
    assert signed_in(desk.outsider).get(str(link["href"])).status_code == 404


def test_a_call_of_another_task_is_not_found(desk: Desk, signed_in: Any) -> None:
    mine, other = finished_task(desk), desk.task()
    call = ToolCall.objects.filter(task=mine).first()
    reply = ModelCall.objects.filter(task=mine).first()
    client = signed_in(desk.viewer)
    assert client.get(f"/tasks/{other.pk}/calls/{call.pk}/").status_code == 404
    assert client.get(f"/tasks/{other.pk}/replies/{reply.pk}/").status_code == 404
    assert client.get(f"/tasks/{mine.pk}/replies/{reply.pk}/").content.decode() == reply.text


def test_markup_in_an_agents_text_stays_text(desk: Desk, signed_in: Any) -> None:
    task = desk.task("<script>alert(1)</script><img src=x onerror=alert(2)>")
    seen = page(signed_in(desk.viewer).get(f"/tasks/{task.pk}/"))
    assert not [script for script in seen.all("script") if not script.get("src")]
    seen.none("img")


def test_a_long_diff_is_cut_with_the_number_that_is_left() -> None:
    shown = diff_lines("\n".join(f"+{n}" for n in range(500)) + "\n", limit=100)
    assert len(shown) == 101
    assert shown[-1].text == "… 400 more lines"
