"""The pages of budgets: what binds whom, who may, what a refused form keeps, and a task raised from its own page."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.engine.test_budgets import EACH, PRICED, STEPS
from tests.harness import make_user, scripted_profile, work
from tests.web.pages import page
from tests.web.people import Desk, sign_in
from tests.web.test_limits import typed_in
from workspaces.actions.budget_settings import create_budget
from workspaces.actions.clock import database_now
from workspaces.actions.retune import retune_task
from workspaces.actions.tasks import create_task
from workspaces.domain.budget_pace import pace
from workspaces.domain.states import BudgetPeriod, BudgetScope
from workspaces.models import AuditEntry, Budget, BudgetAccount, Task

pytestmark = pytest.mark.django_db(transaction=True)

HTMX = {"HTTP_HX_REQUEST": "true"}


@pytest.fixture
def priced(desk: Desk) -> Desk:
    """A desk whose tasks cost 0.0015 USD a step, three steps long."""
    desk.version = scripted_profile(desk.owner, STEPS, **PRICED)
    return desk


def budget(desk: Desk, scope: str, usd: str | None = "1", **fields: Any) -> Budget:
    target: dict[str, Any] = {"user": desk.owner, "workspace": desk.workspace, "profile": desk.version.profile}
    given = {} if scope == "site" else {scope: fields.pop("of", None) or target[scope]}
    limit = Decimal(usd) if usd is not None else None
    fields = {"period": BudgetPeriod.MONTH, "reason": "as agreed", "actor": desk.staff, "limit_usd": limit} | fields
    return create_budget(scope=BudgetScope(scope), **given, **fields)


def test_what_drew_on_a_budget_without_a_price_is_not_said_to_be_free(desk: Desk) -> None:
    desk.version = scripted_profile(
        desk.owner, STEPS, **PRICED | {"input_usd_per_mtok": None, "output_usd_per_mtok": None}
    )
    site = budget(desk, "site", None, limit_tokens=1_000_000)
    work(desk.task(hold=False))
    drawn = page(sign_in(desk.staff).get(f"/budgets/{site.pk}/")).text("#budget-draws")
    assert "price unknown" in drawn
    assert "$" not in drawn


def test_a_task_without_room_is_raised_from_its_page_and_finishes(priced: Desk) -> None:
    client = sign_in(priced.operator)
    asked = {
        "workspace": priced.workspace.pk,
        "profile": priced.version.pk,
        "instruction": "Go.",
        "budget_usd": "0.005",
    }
    assert client.post("/tasks/new/", asked).status_code == 302
    task = work(Task.objects.get())
    assert task.waiting_for == "budget"
    own = Budget.objects.get(task=task)
    assert (own.created_by, own.limit_usd) == (priced.operator, Decimal("0.005"))

    shown = page(client.get(f"/tasks/{task.pk}/"))
    assert f"No room in the budget of task {task.pk}" in shown.text(".task-budget-short")
    assert "60 % used, $0.0020 left" in shown.text("#task-budgets summary")
    raise_at = shown.one(".task-budget-short .button")["href"]
    assert page(sign_in(priced.viewer).get(f"/tasks/{task.pk}/")).all(".task-budget-short .button") == []
    assert sign_in(priced.viewer).post(raise_at, {"limit_usd": "9", "reason": "mine"}).status_code == 403

    dialog = page(client.get(raise_at, **HTMX))
    least = Decimal(dialog.one("[name=limit_usd]")["value"])
    assert Decimal("0.005") < least < Decimal("0.006"), "the least with which it can go on"
    address = dialog.one("form")["hx-post"]
    refused = client.post(address, {"limit_usd": "0.5", "alerts": "50, many", "reason": ""}, **HTMX)
    assert (refused.status_code, refused["HX-Retarget"]) == (422, "#dialog-slot")
    found = page(refused)
    assert [found.one(f"[name={name}]")["value"] for name in ("limit_usd", "alerts")] == ["0.5", "50, many"]
    assert Budget.objects.get(pk=own.pk).limit_usd == Decimal("0.005")

    answer = client.post(address, {"limit_usd": str(least), "alerts": "80", "reason": "worth it"}, **HTMX)
    assert answer.status_code == 200
    assert page(answer).all(".task-budget-short") == []
    assert work(task).status == "succeeded"
    changes = page(client.get(f"/budgets/{own.pk}/"))
    assert "worth it" in changes.all("#budget-changes li")[0].text
    assert "$0.005 → $0.005" in changes.all("#budget-changes li")[0].text


def test_the_list_says_what_is_used_who_waits_first_and_the_figures_are_the_accounts(priced: Desk) -> None:
    wide = budget(priced, "site", "50")
    tight = budget(priced, "workspace", "0.005", alerts=[30, 50])
    task = work(priced.task(hold=False))
    assert task.waiting_for == "budget"
    client = sign_in(priced.staff)
    shown = page(client.get("/budgets/"))
    assert [row["id"] for row in shown.all("#budgets tbody tr")] == [f"budget-row-{each.pk}" for each in (tight, wide)]
    row = shown.text(f"#budget-row-{tight.pk}")
    assert "1 task waits" in row
    assert "$0.0030 of $0.0050 spent" in row
    assert [float(part["width"]) for part in shown.all(f"#budget-row-{tight.pk} rect.budget-spent")] == [60.0]
    one = page(client.get(f"/budgets/{tight.pk}/"))
    assert f"#{task.pk}" in one.text("#budget-waiting")
    assert "$0.0030" in one.text("#budget-draws")
    account = BudgetAccount.objects.get(budget=tight)
    figure = client.get(f"/budgets/{tight.pk}/periods.json").json()
    assert figure["data"][0]["x"] == [account.period_key]
    assert figure["data"][0]["y"] == [float(account.spent_usd)] == [2 * float(EACH)]
    assert [cell.text.strip() for cell in one.all("#budget-accounts tbody td")][:2] == [account.period_key, "$0.0030"]
    assert "30 %, 50 %" in one.text("#budget-accounts")

    # it needs a person: in the fleet, in the inbox, in the frame of every page
    fleet = page(client.get("/"))
    assert "1 needs a person" in fleet.text("#fleet-counts")
    assert "its budget has no room" in fleet.text("#fleet-rows")
    assert "has no room for 1 task" in fleet.text("#budget-alerts") or "is used up" in fleet.text("#budget-alerts")
    assert page(client.get("/inbox/")).all("#budget-alerts .button")
    assert page(client.get("/workspaces/")).text("#budget-count").startswith("1 ")
    BudgetAccount.objects.update(exhausted_at=None, alerted=[])
    assert page(client.get("/workspaces/")).one("#budget-count").has_attr("hidden")


def test_members_see_what_binds_them_and_of_others_the_sum_alone(priced: Desk) -> None:
    site = budget(priced, "site", "50", period=BudgetPeriod.TASK)
    site_month = budget(priced, "site", "70")
    space = budget(priced, "workspace", "5")
    owners = budget(priced, "user", "7")
    mine = work(priced.task(hold=False))
    other = create_task(
        workspace=priced.workspace, profile_version=priced.version, instruction="Hidden words.", actor=priced.owner
    )
    assert work(other).status == "succeeded"

    outsider = sign_in(priced.outsider)
    listed = page(outsider.get("/budgets/"))
    assert {row["id"] for row in listed.all("#budgets tbody tr")} == {
        f"budget-row-{each.pk}" for each in (site, site_month)
    }
    shown = page(outsider.get(f"/budgets/{site_month.pk}/"))
    assert "everything else" in shown.text("#budget-draws")
    assert str(6 * EACH) in str(shown.one("#budget-draws strong span")["title"])
    text = page(outsider.get(f"/budgets/{site.pk}/")).text("main")
    for hidden in ("Hidden words", f"task {mine.pk}", f"task {other.pk}", f"#{mine.pk}", priced.workspace.name):
        assert hidden not in text
        assert hidden not in outsider.get(f"/budgets/{site.pk}/periods.json").content.decode()
    for hidden in (space, owners):
        for path in ("", "periods.json", "change/"):
            assert outsider.get(f"/budgets/{hidden.pk}/{path}").status_code == 404
        assert outsider.post(f"/budgets/{hidden.pk}/end/", {"reason": "mine"}).status_code == 404

    viewer = sign_in(priced.viewer)
    assert "Do the work." in page(viewer.get(f"/budgets/{space.pk}/")).text("#budget-draws")
    assert viewer.get(f"/budgets/{owners.pk}/").status_code == 404
    running = priced.task()
    told = page(viewer.get(f"/tasks/{running.pk}/")).text("#task-budgets")
    assert "its figures are theirs" in told, "what its creator spends elsewhere is not told"
    for each in (space, site_month):
        assert viewer.get(f"/budgets/{each.pk}/change/").status_code == 403
        assert viewer.post(f"/budgets/{each.pk}/end/", {"reason": "mine"}, **HTMX).status_code == 403
    assert Client().get("/budgets/").status_code == 302
    assert not Budget.objects.exclude(ended_at=None).exists()


def test_a_budget_is_set_and_ended_with_reasons_and_a_refused_form_keeps_what_was_typed(priced: Desk) -> None:
    client = sign_in(priced.owner)
    offered = {option.get("value") for option in page(client.get("/budgets/new/")).all("#id_of option")}
    assert f"workspace:{priced.workspace.pk}" in offered
    assert f"user:{priced.owner.pk}" in offered
    assert not {"site", f"user:{priced.staff.pk}"} & offered
    typed = {
        "of": f"workspace:{priced.workspace.pk}",
        "period": "day",
        "limit_usd": "",
        "limit_tokens": "",
        "alerts": "70",
    }
    for change, words in (
        ({}, "Give a limit"),
        ({"limit_usd": "1", "reason": ""}, "Say why"),
        ({"limit_usd": "1", "alerts": "150"}, "from 1 to 100"),
        ({"limit_usd": "1", "of": "site"}, "Site staff, or an owner"),
        ({"limit_usd": "1", "of": f"user:{priced.staff.pk}"}, "Choose what it limits"),
        ({"limit_usd": "1", "of": "task", "task": "999999"}, "a task that you can see"),
        ({"limit_usd": "-1"}, "greater than or equal"),
        ({"limit_usd": "1", "of": "workspace:x"}, "Choose what it limits"),
    ):
        sent = {**typed, "reason": "as agreed", **change}
        answer = client.post("/budgets/new/", sent)
        assert answer.status_code == 422, change
        found = page(answer)
        assert words in found.text("main"), change
        for name in ("limit_usd", "alerts", "reason"):
            assert found.one(f"#new-budget [name={name}]")["value"] == sent[name]
    assert not Budget.objects.exists()
    answer = client.post("/budgets/new/", {**typed, "limit_usd": "2.50", "reason": "as agreed"})
    made = Budget.objects.get()
    assert answer["Location"] == f"/budgets/{made.pk}/"
    assert (made.scope, made.period, made.limit_usd, made.alerts) == ("workspace", "day", Decimal("2.5"), [70])
    assert AuditEntry.objects.get(action="budget.set").reason == "as agreed"
    assert client.post(f"/budgets/{made.pk}/end/", {"reason": " "}, **HTMX).status_code == 409
    assert client.post(f"/budgets/{made.pk}/end/", {"reason": "not needed"}, **HTMX)["HX-Redirect"]
    made.refresh_from_db()
    assert made.ended_by == priced.owner
    shown = page(client.get(f"/budgets/{made.pk}/"))
    assert "not needed" in shown.text("#budget-changes")
    assert shown.all("#end-budget") == []
    assert page(client.get("/budgets/")).one("#ended-budgets")


def test_the_limits_dialog_sets_changes_and_ends_a_tasks_own_budget(priced: Desk) -> None:
    task = priced.task()
    client = sign_in(priced.operator)
    address = f"/tasks/{task.pk}/limits/"
    sent = typed_in(page(client.get(address)), budget_usd="0.50", reason="a leash")
    assert client.post(address, sent, **HTMX).status_code == 200
    own = Budget.objects.get(task=task)
    assert (own.limit_usd, own.limit_tokens, own.period) == (Decimal("0.5"), None, "task")
    found = page(client.get(address))
    assert found.one("#limits-usd")["value"] == "0.5"
    retune_task(task.pk, {"budget_usd": Decimal(2)}, reason="meanwhile", actor=priced.operator)
    refused = client.post(address, typed_in(found, budget_usd="0.7", reason="less"), **HTMX)
    assert "budget in USD meanwhile, to $2" in page(refused).text("#form-errors")
    both = typed_in(page(client.get(address)), budget_tokens="5000", max_steps="20", reason="both")
    assert client.post(address, both, **HTMX).status_code == 200
    own.refresh_from_db()
    task.refresh_from_db()
    assert (own.limit_usd, own.limit_tokens, task.max_steps) == (Decimal(2), 5000, 20)
    none = typed_in(page(client.get(address)), budget_usd="", budget_tokens="", reason="no more")
    assert client.post(address, none, **HTMX).status_code == 200
    own.refresh_from_db()
    assert own.ended_by == priced.operator
    # what somebody of more weight has set is theirs
    budget(priced, "task", "1", of=task, period=BudgetPeriod.TASK, actor=priced.owner)
    found = page(client.get(address))
    assert found.one("#limits-usd").has_attr("readonly")
    refused = client.post(address, typed_in(found, budget_usd="9", max_steps="30", reason="mine"), **HTMX)
    assert "set by somebody else" in page(refused).text("#form-errors")
    task.refresh_from_db()
    assert task.max_steps == 20, "all of it or nothing"
    check = work(task)
    assert check.status == "paused"


def test_the_pages_ask_the_database_as_often_for_one_budget_as_for_many(priced: Desk) -> None:
    task = priced.task()
    budget(priced, "site", "50")
    client = sign_in(priced.staff)

    def asked(path: str) -> int:
        client.get(path)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert client.get(path).status_code == 200
        return len(seen)

    paths = ("/budgets/", f"/tasks/{task.pk}/", "/", "/inbox/")
    before = [asked(path) for path in paths]
    for scope in ("workspace", "user", "profile"):
        budget(priced, scope, "5")
        budget(priced, scope, "6", period=BudgetPeriod.DAY)
    for _ in range(8):
        budget(priced, "user", "5", of=make_user())
    BudgetAccount.objects.update(exhausted_at=database_now())
    after = [asked(path) for path in paths]
    # alerts were none before: they cost a fixed number
    assert after[0] <= before[0] + 1
    assert after[1] <= before[1] + 2
    assert after[2] <= before[2] + 8
    assert after[3] <= before[3] + 8


def test_the_pace_is_a_line_through_what_was_spent_and_says_nothing_too_early() -> None:
    begin = datetime.fromisoformat("2026-12-01T00:00:00+00:00")
    day = timedelta(days=1)
    assert pace(Decimal(10), begin, begin + day, begin + timedelta(minutes=30)) is None
    half = pace(Decimal(25), begin, begin + day, begin + day / 2)
    assert half is not None
    assert (half.percent, half.used_up_at) == (50, None)
    fast = pace(Decimal(75), begin, begin + day, begin + day / 2)
    assert fast is not None
    assert (fast.percent, fast.used_up_at) == (150, begin + day * 2 / 3)
    total = pace(Decimal(50), begin, None, begin + day)
    assert total is not None
    assert (total.percent, total.used_up_at) == (None, begin + 2 * day)
    for used in (Decimal(0), Decimal(100), Decimal(120)):
        assert pace(used, begin, begin + day, begin + day / 2) is None
