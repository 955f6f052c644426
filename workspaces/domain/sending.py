"""When a message that did not arrive is tried again, and what an answer's status means. Pure: no clock, no chance.

After the recommendation of Standard Webhooks (spec/standard-webhooks.md, "Deliverability and reliability"): growing
pauses with jitter, `Retry-After` heeded, 2xx is the only success, a redirect is a failure, 410 ends it. Other 4xx are
tried again as well: most are a receiver's own fault that somebody mends within the day.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from workspaces.domain.endpoints import AttemptOutcome

PAUSES_S = (5, 20, 80, 300, 1200, 3600, 7200, 14400, 28800)  # after the 1st, 2nd … try; the last one repeats
WINDOW_S = 24 * 3600  # after its first day a message is given up
JITTER = 0.2  # of a pause, up and down
LAST_WORTH_S = 30  # a last try at the window's end, unless one was made as shortly before
THROTTLED = frozenset((429, 502, 503, 504))  # the receiver has too much: nothing else is sent to it meanwhile either
THROTTLE_S = 5.0  # where it does not say for how long
GONE = 410


def outcome_of(status: int) -> AttemptOutcome:
    if 200 <= status <= 299:
        return AttemptOutcome.DELIVERED
    return AttemptOutcome.GONE if status == GONE else AttemptOutcome.REFUSED


def words_of(status: int) -> str:
    """Why an answer was no success, for people."""
    if 300 <= status <= 399:
        return f"HTTP {status}: it redirects, which is not followed. Set the address to where it leads."
    if status == GONE:
        return "HTTP 410: it is gone, and wants no more messages."
    if status in (401, 403):
        return f"HTTP {status}: the receiver did not let it in. Does it know the signing secret?"
    if status == 429:
        return "HTTP 429: too many requests for the receiver."
    return f"HTTP {status}"


def pause_s(tries: int, *, left_s: float, chance: float, asked_s: float | None = None) -> float | None:
    """How long to wait after `tries` tries that failed; None: it is given up.

    `left_s`: until the message's window ends; the last try falls on its end. `chance` in [0, 1) spreads the tries of
    many messages. `asked_s`: the receiver's Retry-After; a longer pause than ours is kept, within the window.
    """
    if left_s < LAST_WORTH_S:
        return None
    base = PAUSES_S[min(max(tries, 1), len(PAUSES_S)) - 1]
    pause = base * (1 - JITTER + 2 * JITTER * chance)
    if asked_s is not None and asked_s > pause:
        pause = asked_s * (1 + JITTER / 2 * chance)  # never before it was asked for
    return min(pause, left_s)


def hold_s(status: int | None, asked_s: float | None) -> float:
    """How long nothing at all is sent to the endpoint. 0: nothing was said of other messages."""
    if status not in THROTTLED:
        return 0.0
    return min(WINDOW_S, THROTTLE_S if asked_s is None else max(asked_s, 1.0))


def retry_after_s(text: str, now: datetime) -> float | None:
    """What a Retry-After header asks for, in seconds from now: a number of them, or an HTTP date. None: nothing."""
    text = text.strip()[:64]
    if text.isascii() and text.isdigit():
        return float(min(int(text), WINDOW_S))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(0.0, seconds), WINDOW_S) if math.isfinite(seconds) else None
