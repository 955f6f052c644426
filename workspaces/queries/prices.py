"""What a model call, a sandbox and stored bytes cost: the profile's own price, else the site's, else the price list's.

A workspace's profile may say more than the site, or the list for a vendor's own address, and not less.
Whatever none of them names has no known price, which is never zero.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import connection

from workspaces.domain import prices
from workspaces.domain.prices import Most, OwnPrice, PricedUnit, Unit, UnitPrice
from workspaces.models import ProfileVersion
from workspaces.providers.base import TokenUsage
from workspaces.queries import price_list

_IN_FORCE = """
SELECT statement_timestamp(), price.*
  FROM (SELECT 1) AS always
  LEFT JOIN (SELECT DISTINCT ON (subject, unit) id, subject, unit, usd, valid_from FROM workspaces_price
              WHERE valid_from <= statement_timestamp()
              ORDER BY subject, unit, valid_from DESC, id DESC) AS price ON TRUE
"""


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The site's own prices as of `at`. Read once before a call is made, so that its reply is priced without asking."""

    own: tuple[OwnPrice, ...]
    at: datetime

    def table(
        self, version: ProfileVersion, model: str, *, prompt_tokens: int, kept_for_an_hour: Decimal = Decimal(0)
    ) -> dict[Unit, UnitPrice]:
        """The price of one token each, for a call with such a prompt; the last is a share of what the cache took."""
        given, answered = version.input_usd_per_mtok, version.output_usd_per_mtok
        own = prices.own_table(self.own, model)
        if given is not None and answered is not None:
            said = prices.profile_table(given, answered, f"profile {version}")
            if version.profile.workspace_id is None:  # made by site staff
                return said
            # Nobody writes himself a price that is lower than what is known to be asked, to get past others' budgets.
            known = self._listed(version, model, prompt_tokens, kept_for_an_hour, by_name=False)
            return prices.not_below(said, known | own)
        if version.provider == ProfileVersion.Provider.SCRIPTED:
            return own
        return self._listed(version, model, prompt_tokens, kept_for_an_hour) | own

    def _listed(
        self,
        version: ProfileVersion,
        model: str,
        prompt_tokens: int,
        kept_for_an_hour: Decimal,
        *,
        by_name: bool = True,
    ) -> dict[Unit, UnitPrice]:
        return price_list.listed(
            version.provider,
            version.base_url,
            model,
            prompt_tokens=prompt_tokens,
            kept_for_an_hour=kept_for_an_hour,
            at=self.at,
            by_name=by_name,
        )

    def priced(
        self, version: ProfileVersion, model: str, usage: TokenUsage | None, *, answered: str = ""
    ) -> list[PricedUnit]:
        """One row a kind of token that occurred, each priced once. No rows when the provider told no usage.

        By the name that was asked for, as what was set aside before; where that has no price (a gateway's or a
        deployment's own name) by the one that `answered`.
        """
        if usage is None:
            return []
        written = usage.cache_write_tokens
        share = Decimal(min(usage.cache_write_1h_tokens, written)) / written if written else Decimal(0)
        table = self.table(version, model, prompt_tokens=usage.prompt_tokens, kept_for_an_hour=share)
        if not table and answered:
            table = self.table(version, answered, prompt_tokens=usage.prompt_tokens, kept_for_an_hour=share)
        quantities = prices.token_quantities(
            input_tokens=usage.input_tokens,
            cached_input_tokens=usage.cached_input_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
        )
        if Unit.REQUESTS in table:
            quantities[Unit.REQUESTS] = 1
        source = next(iter(table.values())).source if table else prices.UNKNOWN
        nothing = PricedUnit(Unit.OUTPUT, Decimal(0), None, Decimal(0), source)
        return prices.priced(quantities, table) or [nothing]

    def per_token(self, version: ProfileVersion, model: str) -> Most | None:
        """The most that a call of the model can be charged, however it is counted. None: no price is known.

        The prompt may be all cached, all written to the cache or neither, and as long as the profile's window.
        """
        found: Most | None = None
        window = version.context_window_tokens
        for prompt in price_list.prompts_of(version.provider, version.base_url, model, at=self.at, most_tokens=window):
            table = self.table(version, model, prompt_tokens=prompt, kept_for_an_hour=_may_keep_for_an_hour(version))
            inputs = [table[unit].usd for unit in prices.TOKEN_UNITS[:3] if unit in table]
            outputs = [table[unit].usd for unit in prices.TOKEN_UNITS[3:] if unit in table]
            if len(inputs) < 3 or len(outputs) < 2:
                return None
            request = table[Unit.REQUESTS].usd if Unit.REQUESTS in table else Decimal(0)
            most = Most(max(inputs), max(outputs), request)
            found = (
                most
                if found is None
                else Most(
                    max(found.input_usd, most.input_usd),
                    max(found.output_usd, most.output_usd),
                    max(found.request_usd, most.request_usd),
                )
            )
        return found

    def resources(self, subject: str) -> dict[Unit, UnitPrice]:
        """Of a running sandbox (prices.SANDBOX) or of stored bytes (prices.STORAGE): only the site can know."""
        return prices.own_table(self.own, subject)


def price_book() -> PriceBook:
    """The site's prices that count at this moment, by the database's clock. One question to the database."""
    with connection.cursor() as cursor:
        cursor.execute(_IN_FORCE)
        rows = cursor.fetchall()
    own = tuple(
        OwnPrice(number, subject, Unit(unit), usd, valid_from)
        for _, number, subject, unit, usd, valid_from in rows
        if number is not None
    )
    return PriceBook(own, rows[0][0])


def per_token(version: ProfileVersion, model: str) -> Most | None:
    """See PriceBook.per_token; for what is set aside before a call."""
    return price_book().per_token(version, model)


def _may_keep_for_an_hour(version: ProfileVersion) -> Decimal:
    """1 where the profile's own fields of the request name that time; we ask for the short one ourselves."""
    return Decimal('"1h"' in json.dumps(version.provider_options.get("extra_body", {})))
