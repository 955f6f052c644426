"""The scratchpad's panel and versions: who wrote what, what it changed, and an older version taken again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.pages import page
from tests.web.people import Desk
from tests.web.worked import finished_task
from workspaces.actions.scratchpad import write_note
from workspaces.models import AuditEntry, ScratchpadEdit

pytestmark = pytest.mark.django_db(transaction=True)

HX = {"HTTP_HX_REQUEST": "true"}


def test_the_panel_names_the_author_and_says_what_the_agent_has_of_it(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    write_note(task.pk, section="plan", text="first", actor=desk.operator)
    write_note(task.pk, section="exit condition", text="tests pass", actor=desk.operator)
    client = signed_in(desk.viewer)
    seen = page(client.get(f"/tasks/{task.pk}/panels/scratchpad/", **HX))
    assert [title.get_text() for title in seen.all("#scratchpad h3")] == ["exit_condition", "plan"]
    assert str(desk.operator) in seen.text("#scratchpad")
    assert "All of it is in every request" in seen.text("#scratchpad")
    seen.none("#scratchpad [data-note-section]")
    write_note(task.pk, section="plan", text="word " * 3_000, actor=desk.operator)
    write_note(task.pk, section="exit_condition", text="", actor=desk.operator)
    seen = page(client.get(f"/tasks/{task.pk}/panels/scratchpad/", **HX))
    assert "a head of" in seen.text("#scratchpad")
    assert "exit_condition" in seen.text("#scratchpad p.muted"), "what was emptied still has its versions"


def test_an_older_version_is_taken_again_with_a_reason(desk: Desk, signed_in: Any) -> None:
    task = desk.task()
    for text in ("one\ntwo", "one\nthree"):
        write_note(task.pk, section="plan", text=text, actor=desk.operator)
    older = ScratchpadEdit.objects.filter(task=task).order_by("pk")[0]
    client = signed_in(desk.operator)
    address = f"/tasks/{task.pk}/notes/?section=plan"
    seen = page(client.get(address))
    newest = seen.all(".context-part")[0]
    assert [line.get_text() for line in newest.select(".diff-add, .diff-del")] == ["-two", "+three"]
    assert not newest.select("form")
    form = {"section": "plan", "seq": older.seq, "reason": " "}
    refused = client.post(f"/tasks/{task.pk}/notes/restore/", form)
    assert refused.status_code == 409
    assert "Say why" in page(refused).text("#refused")
    assert client.post(f"/tasks/{task.pk}/notes/restore/", form | {"reason": "it was better"}).url == address
    task.refresh_from_db()
    assert task.scratchpad == {"plan": "one\ntwo"}
    assert AuditEntry.objects.get(action="task.note_restore").reason == "it was better"
    again = client.post(f"/tasks/{task.pk}/notes/restore/", form | {"reason": "typed & kept"})
    assert again.status_code == 409
    assert page(again).one(f"#reason-{older.seq}")["value"] == "typed & kept"


def test_who_may_see_and_who_may_take_a_version_again(desk: Desk, signed_in: Any) -> None:
    task = finished_task(desk)
    seq = ScratchpadEdit.objects.get(task=task).seq
    form = {"section": "plan", "seq": seq, "reason": "x"}
    for user in (desk.viewer, desk.operator, desk.owner, desk.staff):
        seen = page(signed_in(user).get(f"/tasks/{task.pk}/notes/?section=plan"))
        assert "the agent" in seen.text(".context-part strong")
    assert signed_in(desk.outsider).get(f"/tasks/{task.pk}/notes/?section=plan").status_code == 404
    assert signed_in(desk.outsider).post(f"/tasks/{task.pk}/notes/restore/", form).status_code == 404
    assert signed_in(desk.viewer).post(f"/tasks/{task.pk}/notes/restore/", form).status_code == 403
    assert signed_in(desk.owner).get(f"/tasks/{task.pk}/notes/restore/").status_code == 405
    ended = signed_in(desk.owner).post(f"/tasks/{task.pk}/notes/restore/", form)
    assert ended.status_code == 409
    assert "closed" in page(ended).text("#refused")
    assert signed_in(desk.owner).get(f"/tasks/{task.pk}/notes/?section=nothing").status_code == 404
