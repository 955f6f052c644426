"""What the page of prices shows: each model in use and what it costs now, what ran without a price, the site's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from django.db.models import Sum

from workspaces.domain import prices
from workspaces.domain.prices import GIVEN_FOR, Unit, UnitPrice
from workspaces.domain.states import UsagePurpose
from workspaces.models import Price, ProfileVersion, Task, UsageRollup
from workspaces.providers import faults
from workspaces.queries import price_list
from workspaces.queries.prices import PriceBook, price_book

SHOWN = 200  # of the history
COLUMNS = (Unit.INPUT, Unit.CACHED_INPUT, Unit.CACHE_WRITE, Unit.OUTPUT)


@dataclass(frozen=True, slots=True)
class Unpriced:
    """What ran at an unknown price. `calls`: at least; a call has one record a unit."""

    calls: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """From so many tokens of prompt on: USD for a million."""

    prompt_tokens: int
    input_usd: Decimal
    output_usd: Decimal


@dataclass(slots=True)
class ModelRow:
    """USD for a million tokens of each of COLUMNS, None unknown. `where`: who is asked, "" when no profile asks now."""

    model: str
    where: str
    profiles: list[str] = field(default_factory=list)
    usd: list[Decimal | None] = field(default_factory=list)
    request_usd: Decimal | None = None
    sources: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    unpriced: Unpriced | None = None

    @property
    def is_known(self) -> bool:
        return None not in self.usd


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """`usd` for what `given_for` says; None unknown, and so much of it ran at an unknown price."""

    words: str
    given_for: str
    usd: Decimal | None
    source: str
    unpriced_quantity: Decimal
    unpriced_words: str


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A price that the site has set. `stands`: "now", "later", "replaced", "withdrawn"."""

    price: Price
    stands: str
    given_for: str


def model_rows(book: PriceBook) -> list[ModelRow]:
    """Those without a known price first, then by name."""
    unpriced = _unpriced()
    rows: dict[tuple[str, str, str], ModelRow] = {}
    for version, model in _in_use():
        table = book.table(version, model, prompt_tokens=1)
        where = faults.host(version.base_url) or version.provider
        sources = list(dict.fromkeys(price.source for price in table.values())) or [prices.UNKNOWN]
        row = rows.setdefault((model, where, sources[0]), ModelRow(model, where))
        if version.profile.name not in row.profiles:
            row.profiles.append(version.profile.name)
        _fill(row, table, sources)
        row.steps = list(_steps(book, version, model))
        row.unpriced = unpriced.get(model)
    known = {row.model for row in rows.values()}
    for model, amount in unpriced.items():
        if model not in known:
            row = rows[model, "", ""] = ModelRow(model, "", unpriced=amount)
            table = prices.own_table(book.own, model)
            _fill(row, table, list(dict.fromkeys(price.source for price in table.values())) or [prices.UNKNOWN])
    return sorted(rows.values(), key=lambda row: (row.is_known, row.model, row.where))


def _fill(row: ModelRow, table: dict[Unit, UnitPrice], sources: list[str]) -> None:
    row.usd = [table[unit].usd * GIVEN_FOR[unit][0] if unit in table else None for unit in COLUMNS]
    row.request_usd = table[Unit.REQUESTS].usd if Unit.REQUESTS in table else None
    row.sources = sources


def _in_use() -> Iterator[tuple[ProfileVersion, str]]:
    """Of the newest version of each profile that can be given a task, and of the tasks that are not done."""
    versions = ProfileVersion.objects.filter(profile__retired_at=None).select_related("profile")
    for version in versions.order_by("profile_id", "-number").distinct("profile_id"):
        yield version, version.model
        if summary_model := version.context_policy.get("summary_model"):
            yield version, summary_model
    unfinished = Task.objects.filter(finished_at=None).select_related("profile_version__profile")
    for task in (
        unfinished.exclude(model_override="")
        .order_by("profile_version", "model_override")
        .distinct("profile_version", "model_override")
    ):
        yield task.profile_version, task.model_override


def _steps(book: PriceBook, version: ProfileVersion, model: str) -> Iterator[Step]:
    before = None
    for prompt in price_list.prompts_of(
        version.provider, version.base_url, model, at=book.at, most_tokens=version.context_window_tokens
    ):
        table = book.table(version, model, prompt_tokens=prompt)
        if Unit.INPUT not in table or Unit.OUTPUT not in table:
            return
        step = Step(prompt, *(table[unit].usd * prices.MTOK for unit in (Unit.INPUT, Unit.OUTPUT)))
        if before is not None and (step.input_usd, step.output_usd) != (before.input_usd, before.output_usd):
            yield step
        before = step


def _unpriced() -> dict[str, Unpriced]:
    beside = [UsagePurpose.SANDBOX.value, UsagePurpose.STORAGE.value]
    sums = (
        UsageRollup.objects.filter(unpriced__gt=0)
        .exclude(purpose__in=beside)
        .values("model", "unit")
        .annotate(calls=Sum("unpriced"), tokens=Sum("unpriced_quantity"))
        .order_by()
    )
    found: dict[str, Unpriced] = {}
    for row in sums:
        known = found.get(row["model"], Unpriced(0, 0))
        tokens = int(row["tokens"]) if Unit(row["unit"]).is_token else 0
        found[row["model"]] = Unpriced(max(known.calls, row["calls"]), known.tokens + tokens)
    return found


def resource_rows(book: PriceBook) -> list[ResourceRow]:
    """What a running sandbox and stored bytes cost."""
    beside = [UsagePurpose.SANDBOX.value, UsagePurpose.STORAGE.value]
    sums = UsageRollup.objects.filter(unpriced__gt=0, purpose__in=beside).values_list("unit")
    amounts = dict(sums.annotate(quantity=Sum("unpriced_quantity")).order_by())
    words = {
        Unit.CPU: ("Sandbox: processor", Decimal(3600), "CPU hours"),
        Unit.MEMORY: ("Sandbox: memory", Decimal(3600), "GiB hours"),
        Unit.STORAGE: ("Stored bytes", Decimal(1), "GiB hours"),
    }
    rows = []
    for subject, units in prices.UNITS_OF.items():
        table = book.resources(subject)
        for unit in units:
            price, (name, per, what) = table.get(unit), words[unit]
            for_many, given_for = GIVEN_FOR[unit]
            rows.append(
                ResourceRow(
                    name,
                    given_for,
                    None if price is None else price.usd * for_many,
                    prices.UNKNOWN if price is None else price.source,
                    amounts.get(unit.value, Decimal(0)) / per,
                    what,
                )
            )
    return rows


def own_rows(book: PriceBook) -> list[OwnRow]:
    """The newest of the site's own, and where each stands."""
    current = {price.number for price in book.own}
    rows = []
    for price in Price.objects.select_related("created_by").order_by("-valid_from", "-pk")[:SHOWN]:
        stands = "later" if price.valid_from > book.at else "now" if price.pk in current else "replaced"
        if price.usd is None and stands == "now":
            stands = "withdrawn"
        rows.append(OwnRow(price, stands, GIVEN_FOR[Unit(price.unit)][1]))
    return rows


def own_subjects(book: PriceBook) -> list[str]:
    """Whose price can be taken back."""
    return sorted({price.subject for price in book.own if price.usd is not None})


def page_context() -> dict[str, object]:
    book = price_book()
    rows = model_rows(book)
    return {
        "models": rows,
        "unknown": sum(not row.is_known for row in rows),
        "resources": resource_rows(book),
        "own": own_rows(book),
        "subjects": own_subjects(book),
        "age": price_list.age(),
    }
