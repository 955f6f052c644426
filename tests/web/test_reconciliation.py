"""A provider's export is brought, read, compared with what was recorded here, and never taken twice."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.harness import scripted_profile, work
from tests.web.pages import page, words
from tests.web.people import Desk
from workspaces.actions.tasks import create_task
from workspaces.models import AuditEntry, Task, UsageImport, UsageImportRow, UsageRecord
from workspaces.queries.integrity import verify

pytestmark = pytest.mark.django_db(transaction=True)

OPENAI = (
    "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch,"
    "input_tokens,output_tokens,input_cached_tokens\n"
    "{day},,{day},,p,1,u,k,{model}-2025-04-14,false,{input},{output},200\n"
    "{day},,{day},,p,1,u,k,{model},false,many,1,0\n"
    "1788307200,,,,,,,,,,,,\n"
)


@pytest.fixture
def task(desk: Desk) -> Task:
    """One call: 800 fresh and 200 cached tokens in, 50 out."""
    scenario = """
        replies:
          - calls: [{name: finish, arguments: {summary: ok}}]
            usage: {input: 800, cached_input: 200, output: 50}
    """
    version = scripted_profile(desk.owner, scenario, input_usd_per_mtok=Decimal(3), output_usd_per_mtok=Decimal(15))
    return work(create_task(workspace=desk.workspace, profile_version=version, instruction="Go.", actor=desk.owner))


def brought(client: Any, text: str, name: str = "usage.csv") -> Any:
    return client.post("/costs/reconcile/", {"file": SimpleUploadedFile(name, text.encode())}, follow=True)


def openai(task: Task, *, tokens_in: int, tokens_out: int) -> str:
    record = UsageRecord.objects.filter(task=task)[0]
    return OPENAI.format(day=f"{record.created_at:%Y-%m-%d}", model=record.model, input=tokens_in, output=tokens_out)


def cells(seen: Any, table: str) -> list[list[str]]:
    return [[words(cell) for cell in row.select("td")] for row in seen.all(f"table#{table} tbody tr")]


def test_a_known_export_is_read_at_once_and_its_difference_explained(desk: Desk, signed_in: Any, task: Task) -> None:
    client = signed_in(desk.staff)
    seen = page(brought(client, openai(task, tokens_in=1100, tokens_out=50)))
    assert "1 row read, 1 empty, 1 unreadable" in seen.text("#import-words")
    (row,) = cells(seen, "difference")
    assert row[2:8] == ["1,000", "1,100", "−100", "50", "50", "–"]
    assert "was the key used elsewhere?" in row[-1]
    ((line, problem, _),) = cells(seen, "bad")
    assert (line, problem) == ("3", "“many” in input_tokens is not a count of tokens")
    source = UsageImport.objects.get()
    text = client.get(f"/costs/reconcile/{source.pk}/?format=csv").content.decode()
    exported = [row for row in csv.DictReader(io.StringIO(text)) if row["table"] == "difference"]
    assert [(each["ours_in"], each["theirs_in"], each["gap_in"]) for each in exported] == [("1000", "1100", "-100")]
    told = client.get(f"/costs/reconcile/{source.pk}/?format=json").json()
    assert told["tables"]["difference"]["rows"][0]["gap_in"] == -100
    assert source.text == openai(task, tokens_in=1100, tokens_out=50)
    assert AuditEntry.objects.filter(action="usage_import.bring", actor=desk.staff).count() == 1


def test_the_same_file_is_recognised_and_an_equal_account_agrees(desk: Desk, signed_in: Any, task: Task) -> None:
    client = signed_in(desk.staff)
    text = openai(task, tokens_in=1000, tokens_out=50)
    assert cells(page(brought(client, text)), "difference")[0][-1] == "agrees"
    again = page(brought(client, text, "other name.csv"))
    assert "This file was imported before" in again.text("#notice")
    assert (UsageImport.objects.count(), UsageImportRow.objects.count()) == (1, 2)


def test_columns_of_another_export_are_chosen_with_a_preview_and_can_be_chosen_anew(
    desk: Desk, signed_in: Any, task: Task
) -> None:
    client = signed_in(desk.staff)
    record = UsageRecord.objects.filter(task=task)[0]
    day, model = f"{record.created_at:%Y-%m-%d}", record.model
    seen = page(brought(client, f"Date;Model;Prompt;Completion;Spend\n{day};{model};1000;50;{task.cost_usd}\n"))
    selects = {str(each["name"]): each.select_one("[selected]") for each in seen.all("#choose-columns select")}
    chosen = {name: str(option["value"]) if option else "" for name, option in selects.items()}
    assert (chosen["day"], chosen["input_tokens"], chosen["cost_usd"]) == ("date", "prompt", "spend")
    source = UsageImport.objects.get()
    path = f"/costs/reconcile/{source.pk}/"
    swapped = chosen | {"input_tokens": "completion", "output_tokens": "prompt"}
    preview = page(client.post(path, swapped | {"act": "preview"}))
    assert cells(preview, "preview")[0][:4] == ["2", day, model, "50"]
    assert not UsageImportRow.objects.exists(), "a preview stores nothing"
    refused = client.post(path, chosen | {"day": "", "act": "store"})
    assert (refused.status_code, page(refused).text("#columns-error")) == (422, "Say which column holds the day.")
    wrong = page(client.post(path, swapped | {"act": "store"}, follow=True))
    assert cells(wrong, "difference")[0][-1] != "agrees"
    right = page(client.post(path, chosen | {"act": "store"}, follow=True))
    assert cells(right, "difference")[0][-1] == "agrees"
    assert UsageImportRow.objects.count() == 1


def test_a_file_that_is_no_export_is_refused_and_nothing_is_kept(desk: Desk, signed_in: Any) -> None:
    client = signed_in(desk.staff)
    response = client.post("/costs/reconcile/", {"file": SimpleUploadedFile("x.csv", b"")})
    assert (response.status_code, page(response).text("#export-error")) == (422, "The file is empty.")
    assert page(client.post("/costs/reconcile/")).text("#export-error") == "Choose a file."
    assert not UsageImport.objects.exists()


def test_a_page_shows_the_first_of_very_many_rows_and_the_export_has_all(
    desk: Desk, signed_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workspaces.web.views.reconciliation.SHOWN", 2)
    client = signed_in(desk.staff)
    rows = "".join(f"2026-09-01,,2026-09-01,,p,1,u,k,model{number},false,5,5,0\n" for number in range(3))
    seen = page(brought(client, OPENAI.partition("\n")[0] + "\n" + rows))
    assert len(cells(seen, "difference")) == 2
    assert "The first 2 rows are shown" in seen.text("main")
    path = f"/costs/reconcile/{UsageImport.objects.get().pk}/"
    assert len(client.get(f"{path}?format=csv").content.decode().splitlines()) == 4


def test_only_site_staff_bring_and_see_exports(desk: Desk, signed_in: Any, task: Task) -> None:
    brought(signed_in(desk.staff), openai(task, tokens_in=1, tokens_out=1))
    path = f"/costs/reconcile/{UsageImport.objects.get().pk}/"
    for who in (desk.owner, desk.outsider):
        client = signed_in(who)
        assert client.get("/costs/reconcile/").status_code == 404
        assert client.post("/costs/reconcile/", {"file": SimpleUploadedFile("x.csv", b"a,b\n1,2")}).status_code == 404
        assert client.get(path).status_code == client.post(path, {"act": "store"}).status_code == 404
    assert UsageImport.objects.count() == 1


def test_a_lost_row_of_an_import_is_found_by_the_auditor(desk: Desk, signed_in: Any, task: Task) -> None:
    brought(signed_in(desk.staff), openai(task, tokens_in=1000, tokens_out=1))

    def broken() -> list[str]:
        return [row.what for result in verify() if result.rule.name == "imports" for row in result.rows]

    assert broken() == []
    UsageImportRow.objects.get(problem="").delete()
    (told,) = broken()
    assert told.endswith("says 1 rows read and 1 unreadable; there are 0 and 1")
