"""What a provider's answer says of its limits, in one form for all vendors. Reads headers; decides nothing.

Two families are read. `x-ratelimit-{limit,remaining,reset}-{requests,tokens}` (OpenAI and those that follow it; some
add `-minute` or `-day`): resets are durations such as "6m0s", "120ms", "1s", or plain seconds. And
`anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}`: resets are RFC 3339 times.
The names do not say over what time an unnamed limit of the first family runs. Where a bucket refills steadily, what is
used and when it is full again tell: a limit that takes about a day to refill is one of a day.

A header is a stranger's word: what is no plain figure within bounds is as if it were not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT_S = 24 * 3600.0
_MOST = 10**12  # of requests or tokens
_LONGEST_VALUE = 64  # characters
_DAY_S = (12 * 3600.0, 36 * 3600.0)  # a refill that takes so long is that of a day
_KINDS = ("requests", "tokens", "input_tokens", "output_tokens")
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|us|µs|ns|s|m|h|d)", re.ASCII)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POOL_LIMITS = {
    "requests": ("requests_per_minute",),
    # One allowance for both directions: neither can be more than the whole.
    "tokens": ("input_tokens_per_minute", "output_tokens_per_minute"),
    "input_tokens": ("input_tokens_per_minute",),
    "output_tokens": ("output_tokens_per_minute",),
    "tokens_per_day": ("tokens_per_day",),
}


@dataclass(frozen=True, slots=True)
class RateHint:
    """What one answer said. Keys: "requests", "tokens" (input and output in one allowance), "input_tokens",
    "output_tokens", for a minute; with "_per_day" behind them for a day. `resets_s`: seconds until it is full again.

    `headers`: the header that named each limit.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    remaining: Mapping[str, int] = field(default_factory=dict)
    resets_s: Mapping[str, float] = field(default_factory=dict)
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def pool_limits(self) -> dict[str, tuple[int, str]]:
        """The limits under a quota pool's names, each with the header that said so. The exact name beats the whole."""
        found: dict[str, tuple[int, str]] = {}
        for kind, names in _POOL_LIMITS.items():
            if kind in self.limits:
                found |= dict.fromkeys(names, (self.limits[kind], self.headers.get(kind, "")))
        return found


def read(headers: Mapping[str, str], now: datetime | None = None) -> RateHint | None:
    """None where the headers say nothing about limits. `now`: what times of day are counted from."""
    now = now or datetime.now(UTC)
    said = {name.lower(): value.strip() for name, value in headers.items() if len(value) <= _LONGEST_VALUE}
    limits: dict[str, int] = {}
    remaining: dict[str, int] = {}
    resets: dict[str, float] = {}
    named: dict[str, str] = {}
    for kind, names in _names(said):
        limit, left = _count(said.get(names[0])), _count(said.get(names[1]))
        reset = _reset(said.get(names[2]), now)
        if kind in _KINDS and names[0].startswith("x-") and _refills_in_a_day(limit, left, reset):
            kind += "_per_day"
        if kind in limits:
            continue
        if limit:  # a limit of nothing would be one that never ends
            limits[kind], named[kind] = limit, names[0]
        if left is not None:
            remaining[kind] = left
        if reset is not None:
            resets[kind] = reset
    wait_s = retry_after(headers, now)
    if not (limits or remaining or resets) and wait_s is None:
        return None
    return RateHint(limits, remaining, resets, wait_s, named)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that the provider asked to wait: `retry-after-ms`, or `Retry-After` as seconds or HTTP date."""
    exact = _number(headers.get("retry-after-ms"))
    if exact is not None:
        return _bounded(exact / 1000.0)
    value = headers.get("retry-after")
    if value is None or len(value) > _LONGEST_VALUE:
        return None
    seconds = _number(value)
    if seconds is not None:
        return _bounded(seconds)
    try:
        then = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return _bounded((then - (now or datetime.now(UTC))).total_seconds())


def _names(said: Mapping[str, str]) -> list[tuple[str, tuple[str, str, str]]]:
    """What each limit is of, with the names of its limit, what remains of it, and when it is full again."""
    found: list[tuple[str, tuple[str, str, str]]] = []
    for kind in _KINDS:
        wire = kind.replace("_", "-")
        vendor = f"anthropic-ratelimit-{wire}"
        found.append((kind, (f"{vendor}-limit", f"{vendor}-remaining", f"{vendor}-reset")))
        for suffix, period in (("-minute", ""), ("", ""), ("-day", "_per_day")):
            common = tuple(f"x-ratelimit-{what}-{wire}{suffix}" for what in ("limit", "remaining", "reset"))
            found.append((kind + period, (common[0], common[1], common[2])))
    return [(kind, names) for kind, names in found if any(name in said for name in names)]


def _count(value: str | None) -> int | None:
    if value is None or not value.isascii() or not value.isdigit():
        return None
    figure = int(value)
    return figure if figure <= _MOST else None


def _reset(value: str | None, now: datetime) -> float | None:
    """Seconds from `now`: of a duration, of plain seconds, or of an RFC 3339 time."""
    if not value:
        return None
    seconds = _number(value)
    if seconds is None:
        seconds = _duration(value)
    if seconds is None:
        try:
            then = datetime.fromisoformat(value)
        except ValueError:
            return None
        if then.tzinfo is None:
            return None
        seconds = max(0.0, (then - now).total_seconds())
    return seconds if 0.0 <= seconds <= LONGEST_WAIT_S else None


def _duration(value: str) -> float | None:
    """ "1h2m3.5s" in seconds."""
    total, at = 0.0, 0
    for part in _PART.finditer(value):
        if part.start() != at:
            return None
        total, at = total + float(part[1]) * _UNIT_S[part[2]], part.end()
    return total if at and at == len(value) else None


def _number(value: str | None) -> float | None:
    if value is None or len(value) > _LONGEST_VALUE:
        return None
    try:
        figure = float(value)
    except ValueError:
        return None
    return figure if math.isfinite(figure) else None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST_WAIT_S)


def _refills_in_a_day(limit: int | None, left: int | None, reset: float | None) -> bool:
    if not limit or left is None or not reset or left >= limit:
        return False
    whole = reset * limit / (limit - left)
    return _DAY_S[0] <= whole <= _DAY_S[1]
