"""The page of prices: for site staff, unknown ones first; a price is set with a reason, and calls are priced by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from tests.harness import scripted_profile, work
from tests.web.pages import page, words
from tests.web.people import Desk
from workspaces.actions.prices import set_prices
from workspaces.actions.tasks import create_task
from workspaces.domain.prices import OwnPrice, Unit, in_force, own_table
from workspaces.models import AuditEntry, ModelCall, Price, Task, UsageRecord, User
from workspaces.queries.database import database_now
from workspaces.queries.prices import per_token, price_book

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], Client]
SCENARIO = """
replies:
  - calls: [{name: note, arguments: {section: plan, text: a}}]
    usage: {input: 1000, cached_input: 500, output: 300, reasoning: 100}
  - calls: [{name: finish, arguments: {summary: done}}]
    usage: {input: 2000, output: 10}
"""


def post(client: Client, **form: str) -> Any:
    wanted = {"form": "model", "subject": "scripted*", "input_tokens": "2", "output_tokens": "8", "reason": "our rate"}
    return client.post("/prices/", wanted | form)


def ran(desk: Desk) -> Task:
    version = scripted_profile(desk.owner, SCENARIO, model="scripted-model")
    return work(create_task(workspace=desk.workspace, profile_version=version, instruction="Go.", actor=desk.owner))


def test_it_is_staff_s(desk: Desk, signed_in: SignIn) -> None:
    for user in (desk.owner, desk.operator, desk.outsider):
        assert signed_in(user).get("/prices/").status_code == 404
        assert post(signed_in(user)).status_code == 404
    assert not Price.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_what_ran_without_a_price_is_listed_first_until_one_is_set(desk: Desk, signed_in: SignIn) -> None:
    staff = signed_in(desk.staff)
    set_prices("scripted", dict.fromkeys((Unit.INPUT, Unit.OUTPUT), Decimal(1)), reason="known", actor=desk.staff)
    task = ran(desk)
    assert (task.cost_usd, task.unpriced_calls) == (0, 2)
    assert set(UsageRecord.objects.values_list("cost_usd", "unit_price_usd")) == {(None, None)}
    shown = page(staff.get("/prices/"))
    first = words(shown.all("#price-models tbody tr")[0])
    assert "scripted-model" in first
    assert "price unknown" in first
    assert "2 calls" in first
    assert "3.8k tokens" in first  # 1000 + 500 + 300 + 2000 + 10
    assert per_token(task.profile_version, "scripted-model") is None

    assert post(staff, cached_input_tokens="0.5").status_code == 302
    entry = AuditEntry.objects.get(action="price.set", reason="our rate")
    assert (entry.actor, entry.reason) == (desk.staff, "our rate")
    assert entry.data["usd"] == {"input_tokens": "2", "cached_input_tokens": "0.5", "output_tokens": "8"}
    shown = page(staff.get("/prices/"))
    row = next(each for each in shown.all("#price-models tbody tr") if "scripted-model" in words(each))
    told = words(row)
    assert "price unknown" not in told
    assert "$0.50" in told
    assert "$8.00" in told
    assert "site price" in told
    assert "2 calls" in told  # that they ran without one stays true

    again = ran(desk)
    # 1000 x 2 + 500 x 0.5 + 300 x 8, and 2000 x 2 + 10 x 8
    assert list(ModelCall.objects.filter(task=again).order_by("pk").values_list("cost_usd", flat=True)) == [
        Decimal("0.00465"),
        Decimal("0.00408"),
    ]
    assert again.cost_usd == Decimal("0.00873")
    reasoning = UsageRecord.objects.get(task=again, unit="reasoning_tokens")
    assert (reasoning.quantity, reasoning.unit_price_usd, reasoning.cost_usd) == (
        100,
        Decimal("0.000008"),
        Decimal("0.0008"),
    )
    assert reasoning.price_source == f"site price {Price.objects.get(unit='output_tokens', usd=8).pk}: scripted*"
    most = per_token(again.profile_version, "scripted-model")
    assert most is not None
    assert Decimal("0.00465") <= most.of(input_tokens=1500, output_tokens=300) < Decimal("0.00541")


def test_a_price_is_taken_back_and_one_of_later_does_not_count_yet(desk: Desk, signed_in: SignIn) -> None:
    staff = signed_in(desk.staff)
    set_prices(
        "scripted*",
        {Unit.INPUT: Decimal(1), Unit.OUTPUT: Decimal(1)},
        reason="from next month",
        actor=desk.staff,
        valid_from=database_now() + timedelta(days=30),
    )
    assert price_book().own == ()
    post(staff)
    assert {price.usd for price in price_book().own} == {Decimal(2), Decimal(8)}
    told = page(staff.get("/prices/")).text("#price-history")
    assert "later" in told
    assert "from next month" in told
    refused = staff.post("/prices/", {"form": "withdraw", "subject": "scripted*", "reason": " "})
    assert refused.status_code == 422
    assert staff.post("/prices/", {"form": "withdraw", "subject": "scripted*", "reason": "list"}).status_code == 302
    assert AuditEntry.objects.get(action="price.withdraw").reason == "list"
    assert own_table(price_book().own, "scripted-model") == {}
    told = page(staff.get("/prices/")).text("#price-history")
    assert "withdrawn" in told
    assert "replaced" in told


def test_sandboxes_and_storage_have_a_form_of_their_own(desk: Desk, signed_in: SignIn) -> None:
    staff = signed_in(desk.staff)
    form = {"form": "resources", "cpu_seconds": "0.036", "memory_gib_seconds": "", "storage_gib_hours": "0.0730"}
    assert staff.post("/prices/", form | {"reason": "the machine's bill"}).status_code == 302
    book = price_book()
    assert book.resources("sandbox")[Unit.CPU].usd == Decimal("0.00001")
    assert Unit.MEMORY not in book.resources("sandbox")
    assert book.resources("storage")[Unit.STORAGE].usd == Decimal("0.0001")
    told = page(staff.get("/prices/")).text("#price-resources")
    assert "$0.036" in told
    assert "price unknown" in told


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"reason": "  "}, "Say why"),
        ({"subject": ""}, "Name the model"),
        ({"subject": "Sandbox"}, "no model here"),
        ({"input_tokens": "two"}, "two is no amount"),
        ({"input_tokens": "-1"}, "from 0 to"),
        ({"input_tokens": "NaN"}, "from 0 to"),
        ({"input_tokens": "1e99"}, "from 0 to"),
        ({"input_tokens": "1e999999999"}, "from 0 to"),
        ({"input_tokens": "0.0000000001"}, "nine places"),
        ({"input_tokens": "", "output_tokens": ""}, "at least one"),
        ({"valid_from": "2020-01-01T00:00"}, "from now on"),
        ({"valid_from": "2020-13-01T00:00"}, "cannot be read"),
        ({"valid_from": "9999-12-31T23:59:59-12:00"}, "ten years"),
        ({"form": "resources", "storage_gib_hours": "x"}, "no amount"),
        ({"form": "other"}, "Reload"),
    ],
)
def test_a_refused_price_says_why_and_keeps_what_was_typed(
    desk: Desk, signed_in: SignIn, form: dict[str, str], said: str
) -> None:
    response = post(signed_in(desk.staff), **form)
    assert response.status_code == 422
    shown = page(response)
    assert said in shown.text("#price-error")
    if form.get("form", "model") == "model":
        assert shown.one("#model_output_tokens").get("value") == form.get("output_tokens", "8")
    assert not Price.objects.exists()


def test_the_exact_name_counts_before_a_pattern_and_the_newest_of_each() -> None:
    now = database_now()

    def own(number: int, subject: str, usd: str | None, unit: Unit = Unit.INPUT, days: int = 1) -> OwnPrice:
        return OwnPrice(number, subject, unit, None if usd is None else Decimal(usd), now - timedelta(days=days))

    prices = in_force(
        [
            own(1, "*", "1"),
            own(2, "gpt-*", "2", days=9),
            own(3, "gpt-*", "3", days=2),
            own(4, "gpt-*", "4", days=2),
            own(5, "gpt-5*", "5", days=-1),
            own(6, "GPT-4", "6"),
            own(7, "gpt-4o*", None),
            own(8, "*", "8", Unit.OUTPUT),
            own(9, "sandbox", "3600", Unit.CPU),
        ],
        now,
    )
    million = {name: own_table(prices, name)[Unit.INPUT].usd * 1_000_000 for name in ("gpt-4", "gpt-5", "gpt-4o", "o3")}
    assert million == {"gpt-4": 6, "gpt-5": 4, "gpt-4o": 4, "o3": 1}
    assert own_table(prices, "o3")[Unit.REASONING].usd * 1_000_000 == 8
    assert Unit.CPU not in own_table(prices, "sandbox-model")
    assert own_table(prices, "sandbox") == {Unit.CPU: own_table(prices, "sandbox")[Unit.CPU]}
