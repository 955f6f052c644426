"""The cost pages: totals are the records', exports and charts are the tables, and nobody sees what is another's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from bs4 import Tag
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.bench import costs as bench
from tests.bench.costs_data import Made, Size, make_usage
from tests.harness import scripted_profile, scripted_task, work
from tests.web.pages import Page, page, words
from tests.web.people import Desk
from workspaces.actions.tasks import create_task
from workspaces.models import Task, UsageDay, UsageRecord, UsageRollup, User, Workspace

pytestmark = pytest.mark.django_db(transaction=True)

PRICED = """
    replies:
      - calls: [{name: note, arguments: {section: plan, text: "=1+1"}}]
        usage: {input: 1000, cached_input: 200, output: 50}
      - text: done
        calls: [{name: finish, arguments: {summary: ok}}]
        usage: {input: 2000, output: 100, reasoning: 40}
"""


@pytest.fixture
def made(db: None) -> Made:
    """Three months of a small site."""
    size = Size(tasks=60, users=14, workspaces=16, storage_hours=48)
    return make_usage(size, now=timezone.now(), template=work(scripted_task(bench.ONE_STEP)))


@pytest.fixture
def boss(signed_in: Any) -> Any:
    return signed_in(User.objects.create_user("boss", is_staff=True))


def long_ago() -> str:
    today = timezone.now().date()
    return f"from={today - timedelta(days=90)}&to={today}"


def addresses(made: Made) -> Iterator[str]:
    for address, _, _ in bench.addresses(made).values():
        yield f"{address}{long_ago()}"


def test_every_page_shows_the_sum_of_its_records_and_in_a_bounded_number_of_queries(made: Made, boss: Any) -> None:
    for seen in bench.look(boss, made, now=timezone.now(), times=1):
        assert seen.right, seen
        assert seen.shown > 0 or seen.page == "task", seen
    assert not bench.rollups_differ()
    for address in addresses(made):
        with CaptureQueriesContext(
            connection,
        ) as caught:
            boss.get(address)
        assert len(caught) <= 30, (address, len(caught))


def test_a_changed_sum_is_found_by_the_bench(made: Made, boss: Any) -> None:
    hour = UsageRollup.objects.filter(cost_usd__gt=0).order_by("-hour")[0]
    UsageRollup.objects.filter(pk=hour.pk).update(quantity=hour.quantity + 1)
    assert bench.rollups_differ() == 1
    day = UsageDay.objects.filter(cost_usd__gt=0).order_by("-day")[0]
    UsageDay.objects.filter(pk=day.pk).update(cost_usd=99)
    assert bench.rollups_differ() == 2
    assert not all(seen.right for seen in bench.look(boss, made, now=timezone.now(), times=1))


def shown(table: Tag) -> list[list[str]]:
    """A table's cells as an export would write them: the exact figure is in the title."""
    rows = []
    for row in table.select("tbody tr"):
        cells = []
        for cell in row.select("td"):
            titled = cell.select_one("[title]")
            exact = titled["title"].removesuffix(" USD") if titled else words(cell)
            cells.append(f"-{exact}" if words(cell).startswith("−") else exact)
        rows.append(cells)
    return rows


def same(shown: str, exported: str) -> bool:
    """Money has nine places on the page's hover; "–" is nothing, a share is a percentage there."""
    if shown == "–":
        return not exported or Decimal(exported) == 0
    if shown == "unknown":  # nothing of the row had a price
        return not exported
    if shown == exported:
        return True
    if shown.endswith("%"):
        return shown == "<1 %" or abs(float(shown.removesuffix(" %")) - 100 * float(exported)) <= 0.51
    try:
        return abs(Decimal(shown.replace(",", "")) - Decimal(exported or "0")) < Decimal("1e-8")
    except ArithmeticError:
        return False


def test_the_exports_are_the_tables_of_the_page(made: Made, boss: Any) -> None:
    for address in addresses(made):
        seen = page(boss.get(address))
        response = boss.get(f"{address}&format=csv")
        assert response["Content-Type"] == "text/csv; charset=utf-8"
        exported: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(io.StringIO(response.content.decode())):
            exported.setdefault(row["table"], []).append(row)
        told = boss.get(f"{address}&format=json").json()["tables"]
        assert set(exported) == set(told)
        checked = 0
        for name, rows in exported.items():
            on_page = seen.all(f"table#{name}")
            if not on_page:
                assert name in ("summary", "hot_spots"), name
                continue
            columns = list(told[name]["rows"][0])
            cells = shown(on_page[0])
            assert len(cells) == len(rows) == len(told[name]["rows"]), name
            for cell_row, csv_row, json_row in zip(cells, rows, told[name]["rows"], strict=True):
                for place, column in enumerate(columns):
                    assert same(cell_row[place], csv_row[column].lstrip("'")), (name, column, cell_row, csv_row)
                    assert same(cell_row[place], str(json_row[column] if json_row[column] is not None else ""))
                    checked += 1
        assert checked > 30
        assert seen.one("#cost-total span")["title"] == f"{Decimal(exported['summary'][0]['total_usd']):.9f} USD"
        spots = [words(item) for item in seen.all("#hot-spots li")]
        assert len(spots) == len(exported.get("hot_spots", []))
        assert all(row["words"] in spot for row, spot in zip(exported.get("hot_spots", []), spots, strict=True))


def test_the_charts_are_the_tables_beside_them_and_tables_add_up_to_the_total(made: Made, boss: Any) -> None:
    for address in addresses(made):
        seen = page(boss.get(address))
        total = Decimal(str(seen.one("#cost-total span")["title"]).removesuffix(" USD"))
        trend = json.loads(seen.one("#trend-figure").text)
        rows = shown(seen.one("table#trend"))
        for place, bars in enumerate(trend["data"]):
            assert bars["x"] == [row[0] for row in rows]
            assert bars["y"] == pytest.approx([float(row[place + 1]) for row in rows])
        assert sum((Decimal(row[-1]) for row in rows), Decimal(0)) == total
        for name in ("users", "workspaces", "profiles", "models"):
            for table in seen.all(f"table#{name}"):
                assert sum((dollars(row[1]) for row in shown(table)), Decimal(0)) == total, name
        for figure in seen.all("#parts-figure"):
            parts = json.loads(figure.text)["data"][1]
            (table,) = [each for each in seen.all("table") if each.get("id") in ("users", "workspaces", "models")][:1]
            assert parts["y"] == pytest.approx([float(dollars(row[1])) for row in shown(table)[: len(parts["y"])]])


def dollars(cell: str) -> Decimal:
    """What a cell adds to a sum, and its bar's height: nothing where the price is unknown."""
    return Decimal(0 if cell == "unknown" else cell)


def test_unpriced_use_is_named_beside_the_sum_and_never_counted_as_zero(made: Made, boss: Any) -> None:
    tokens = UsageRollup.objects.filter(model="local/qwen-coder")
    assert tokens.exists()
    seen = page(boss.get(f"/costs/models/?name=local/qwen-coder&{long_ago()}"))
    quantity = sum(row.quantity for row in tokens)
    assert seen.text("#cost-unknown") == f"+ {quantity:,.0f} tokens at unknown price"
    assert seen.text("#cost-total") == "price unknown"
    assert {words(cell) for cell in seen.all("#users td:nth-child(2)")} == {"unknown"}
    assert {words(cell) for cell in seen.all("#outcomes td:nth-child(3)")} == {"unknown"}
    assert "at unknown price" in page(boss.get(f"/costs/?{long_ago()}")).text("#cost-unknown")


def test_a_bad_period_is_told_and_an_export_of_it_is_refused(desk: Desk, signed_in: Any) -> None:
    client = signed_in(desk.owner)
    seen = page(client.get("/costs/me/?from=2026-02-30"))
    assert "“2026-02-30” is not a day" in seen.text("#period-problem")
    assert "Shown instead" in seen.text("#period-problem")
    refused = client.get("/costs/me/?period=forever&format=csv")
    assert (refused.status_code, refused["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert "There is no period “forever”" in refused.content.decode()


def test_nothing_used_is_said_in_words(desk: Desk, signed_in: Any) -> None:
    assert page(signed_in(desk.outsider).get("/costs/me/")).one("#no-costs")


def priced_task(desk: Desk, **fields: Any) -> Task:
    version = scripted_profile(
        desk.owner,
        PRICED,
        detectors={"observe_only": True},
        input_usd_per_mtok=Decimal(3),
        output_usd_per_mtok=Decimal(15),
    )
    task = create_task(
        workspace=desk.workspace, profile_version=version, instruction="=HYPERLINK(1)", actor=desk.owner, **fields
    )
    return work(task)


def test_a_user_sees_only_what_is_theirs(desk: Desk, signed_in: Any) -> None:
    task = priced_task(desk)
    owner, place, profile = desk.owner.pk, desk.workspace.pk, task.profile_version.profile_id
    may = {
        "/costs/": {"staff"},
        "/costs/me/": {"owner", "operator", "viewer", "outsider", "staff"},
        f"/costs/users/{owner}/": {"owner", "staff"},
        f"/costs/workspaces/{place}/": {"owner", "staff"},
        f"/costs/tasks/{task.pk}/": {"owner", "operator", "viewer", "staff"},
        f"/costs/tasks/{task.pk}/steps/1/": {"owner", "operator", "viewer", "staff"},
        f"/costs/profiles/{profile}/": {"owner", "operator", "viewer", "outsider", "staff"},  # it is the site's
    }
    for who in ("owner", "operator", "viewer", "outsider", "staff"):
        client = signed_in(getattr(desk, who))
        for path, allowed in may.items():
            for form in ("",) if who in allowed else ("", "?format=csv", "?format=json"):
                status = client.get(path + form).status_code
                assert status == (200 if who in allowed else 403 if path == "/costs/" else 404), (who, path, status)
    mine = page(signed_in(desk.owner).get(f"/costs/profiles/{profile}/"))
    assert Decimal(str(mine.one("#cost-total span")["title"]).split()[0]) > 0
    for other in (desk.operator, desk.outsider):
        for path in (f"/costs/profiles/{profile}/", "/costs/models/?name=scripted"):
            assert page(signed_in(other).get(path)).one("#no-costs"), "what others spent with it is not theirs to see"


def test_a_task_leads_to_its_cost_and_down_to_each_call_with_its_price(desk: Desk, signed_in: Any) -> None:
    task = priced_task(desk)
    client = signed_in(desk.viewer)
    link = page(client.get(f"/tasks/{task.pk}/")).one("#task-cost")["href"]
    seen = page(client.get(str(link)))
    assert seen.one(f'#about[href="/tasks/{task.pk}/"]')
    assert seen.one("#cost-total span")["title"] == f"{task.cost_usd:.9f} USD"
    steps = seen.all("table#steps tbody a")
    assert [words(link) for link in steps] == ["step 2", "step 1"]
    below = page(client.get(str(steps[0]["href"])))
    rows = [[words(cell) for cell in row.select("td")] for row in below.all("table#calls tbody tr")]
    assert {(row[1], row[2], row[3]) for row in rows} == {("step", "scripted", "replied")}
    priced = {row[4]: row[5:] for row in rows}
    assert priced["input tokens"] == ["2,000", "$3.00 / million", "$0.0060", priced["input tokens"][3]]
    assert "profile" in priced["input tokens"][3], "where the price is from"
    assert priced["reasoning tokens"][0] == "40"
    total = Decimal(str(below.one("#step-total span")["title"]).split()[0])
    records = UsageRecord.objects.filter(step__task=task, step__number=2)
    assert total == sum((record.cost_usd or Decimal(0) for record in records), Decimal(0)) > 0


def test_an_export_of_older_steps_is_of_those(made: Made, boss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspaces.queries.cost_steps.STEPS_A_PAGE", 4)
    task = Task.objects.order_by("-steps_taken")[0]
    seen = page(boss.get(f"/costs/tasks/{task.pk}/?page=2&{long_ago()}"))
    steps = [words(link) for link in seen.all("table#steps tbody a")]
    text = boss.get(f"/costs/tasks/{task.pk}/{seen.one('#export-csv')['href']}").content.decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["table"] == "steps"]
    last = task.steps_taken
    assert [row["step"] for row in rows] == steps == [f"step {last - back}" for back in range(4, 8)]


def test_names_that_are_formulas_are_harmless_in_an_export(desk: Desk, signed_in: Any) -> None:
    Workspace.objects.filter(pk=desk.workspace.pk).update(name="=cmd|' /C calc'!A0")
    priced_task(desk, title="@SUM(1)")
    text = signed_in(desk.owner).get("/costs/me/?format=csv").content.decode()
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert "'=cmd|' /C calc'!A0" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]


def test_idle_storage_and_the_cost_of_an_ended_task_are_counted(made: Made, boss: Any) -> None:
    seen = page(boss.get(f"/costs/?{long_ago()}"))
    rows = {
        words(row.select("td")[0]): [words(cell) for cell in row.select("td")] for row in seen.all("#outcomes tbody tr")
    }
    ended = Task.objects.filter(finished_at__isnull=False, usage__isnull=False).distinct()
    assert int(rows["finished"][1]) == ended.filter(status="succeeded").count()
    spent = UsageRecord.objects.filter(task__in=ended.filter(status="failed"))
    together = sum((record.cost_usd or Decimal(0) for record in spent), Decimal(0))
    failed = [row for row in seen.all("#outcomes tbody tr") if words(row).startswith("failed")]
    assert Decimal(failed[0].select("td")[4].select_one("[title]")["title"].split()[0]) == together  # type: ignore[index,union-attr]
    retried = sum((record.cost_usd or Decimal(0) for record in UsageRecord.objects.filter(purpose="retry")), Decimal(0))
    (retries,) = [row for row in seen.all("#beside tbody tr") if words(row).startswith("retries")]
    assert Decimal(retries.select("td")[1].select_one("[title]")["title"].split()[0]) == retried > 0  # type: ignore[index,union-attr]
    used = UsageRollup.objects.exclude(purpose="storage").values("workspace")
    idle = Workspace.objects.filter(sandbox_key__startswith="bench-").exclude(pk__in=used).count()
    assert f"{idle} workspaces in which nothing ran" in Page(boss.get(f"/costs/?{long_ago()}").content).text("#beside")
