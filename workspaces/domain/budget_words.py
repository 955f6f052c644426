"""What is said about budgets: their names, their periods, and why one has no room. Pure.

Of a budget that adds up what else a person or the site spends, no figure is told to whoever sees one task.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from workspaces.domain.budgets import Amount, Figures
from workspaces.domain.states import BudgetPeriod, BudgetScope

# whoever sees a task sees all that is spent in its workspace
OPEN_SCOPES = frozenset({BudgetScope.TASK, BudgetScope.WORKSPACE})


def named(scope: BudgetScope, what: str) -> str:
    """`what`: the name of the user, workspace or profile; the id of the task."""
    return {
        BudgetScope.SITE: "the site's budget",
        BudgetScope.USER: f"the budget of user {what}",
        BudgetScope.WORKSPACE: f"the budget of workspace {what}",
        BudgetScope.PROFILE: f"the budget of profile {what}",
        BudgetScope.TASK: f"the budget of task {what}",
    }[scope]


def period_words(period: BudgetPeriod, key: str) -> str:
    match period:
        case BudgetPeriod.TASK:
            return f"for task {key.removeprefix('task:')}"
        case BudgetPeriod.TOTAL:
            return "in total"
        case _:
            return f"for {key}"


def no_room_words(name: str, figures: Figures, need: Amount, ends_at: datetime | None, *, told: bool) -> str:
    """Why this budget has no room for a call, and what helps. `told`: with what was spent of it."""
    begin = name[:1].upper() + name[1:]
    if figures.limit_usd is not None and need.usd is None:
        return (
            f"{begin} is in USD, and the price of this model is not known. Set a price for it, or limit it by a budget "
            "of tokens instead."
        )
    short = []
    if figures.left_usd is not None and need.known_usd > figures.left_usd:
        most = usd_words(need.known_usd)
        spent, assumed, reserved = (each.known_usd for each in (figures.spent, figures.assumed, figures.reserved))
        short.append(_short(most, figures.limit_usd, spent, assumed, reserved, usd_words, told))
    if figures.left_tokens is not None and need.tokens > figures.left_tokens:
        most = tokens_words(need.tokens)
        spent, assumed, reserved = (Decimal(each.tokens) for each in (figures.spent, figures.assumed, figures.reserved))
        short.append(_short(most, figures.limit_tokens, spent, assumed, reserved, tokens_words, told))
    return f"{begin} has no room for this call: {'; '.join(short)}. {_helps(figures, need, ends_at)}"


def _short(
    most: str,
    limit: Decimal | int | None,
    spent: Decimal,
    assumed: Decimal,
    reserved: Decimal,
    words: Callable[[Decimal], str],
    told: bool,
) -> str:
    if not told:
        return f"it may need up to {most}, and less is left"
    of = f"{words(spent)} of {words(Decimal(limit or 0))} spent"
    of += f", {words(assumed)} assumed for calls that never answered" if assumed else ""
    of += f", {words(reserved)} reserved for what runs now" if reserved else ""
    return f"{of}, and it may need up to {most}"


def _helps(figures: Figures, need: Amount, ends_at: datetime | None) -> str:
    if not figures.ever_has_room(need):
        return "That is more than the whole limit: raise it, or lower the output limit."
    until = f", or wait for the next period, from {ends_at:%Y-%m-%d %H:%M} UTC" if ends_at else ""
    if figures.could_have_room(need):
        return f"It goes on when what runs gives back enough. Or raise it{until}."
    return f"Raise it to go on{until}."


def used_words(figures: Figures) -> str:
    """ "$8.10 of $10.00, 1,200 tokens of 2,000 tokens": what counts against each limit."""
    said = []
    if figures.limit_usd is not None:
        used = figures.spent.known_usd + figures.assumed.known_usd
        said.append(f"{usd_words(used)} of {usd_words(figures.limit_usd)}")
    if figures.limit_tokens is not None:
        said.append(f"{figures.spent.tokens + figures.assumed.tokens:,} of {tokens_words(figures.limit_tokens)}")
    return ", ".join(said)


def tokens_words(count: Decimal | int) -> str:
    return f"{int(count):,} tokens"


def usd_words(value: Decimal) -> str:
    """As many places as it takes to tell small sums apart: $12.50, $0.0342, $0.000003."""
    if value == 0:
        return "$0"
    if abs(value) >= 1:
        return f"${value:,.2f}"
    return f"${value:.{min(9, 2 - value.adjusted())}f}".rstrip("0")


def limits_in_words(old: Any, new: Any) -> list[tuple[str, str]]:
    """(name, "old → new") of what differs between two settings of a budget, as its event and the audit log say."""
    before, after = old if isinstance(old, dict) else {}, new if isinstance(new, dict) else {}
    if not after:
        return []
    return [
        (words, f"{_setting(name, before[name])} → {_setting(name, after.get(name))}")
        if name in before
        else (words, _setting(name, after.get(name)))
        for name, words in SETTINGS
        if before.get(name) != after.get(name)
    ]


SETTINGS = (("limit_usd", "USD"), ("limit_tokens", "tokens"), ("alerts", "tells at"))


def _setting(name: str, value: Any) -> str:
    if value is None or value == []:
        return "none"
    if name == "alerts":
        return ", ".join(f"{each} %" for each in value)
    return usd_words(Decimal(str(value))) if name == "limit_usd" else f"{value:,}"


def threshold_in_words(data: Any) -> list[tuple[str, str]]:
    """Of a budget's event, whose figures are told of some scopes only."""
    scope, period = str(data.get("scope")), str(data.get("period"))
    of = f"the {scope}'s, {period}" if scope != "task" else f"{period.replace(':', ' ')}"
    found = [("of", of), ("past", f"{data.get('threshold')} %")]
    if data.get("limit_usd") is not None:
        spent, limit = (usd_words(Decimal(str(data.get(name) or 0))) for name in ("spent_usd", "limit_usd"))
        found.append(("spent", f"{spent} of {limit}"))
    if data.get("limit_tokens") is not None:
        found.append(("tokens", f"{data.get('spent_tokens') or 0:,} of {data['limit_tokens']:,}"))
    return found
