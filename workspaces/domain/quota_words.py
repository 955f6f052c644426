"""What the pages call a pool's limits, its circuit and its notices. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.states import Circuit, NoticeKind


@dataclass(frozen=True, slots=True)
class LimitWords:
    """`counts`: what is counted against it, for whoever asks by hovering."""

    name: str
    unit: str
    counts: str


LIMITS = {
    "requests_per_minute": LimitWords("Requests", "a minute", "calls that began in the last 60 seconds"),
    "input_tokens_per_minute": LimitWords(
        "Input tokens", "a minute", "tokens sent in the last 60 seconds: estimated at first, then as counted"
    ),
    "output_tokens_per_minute": LimitWords(
        "Output tokens", "a minute", "tokens written in the last 60 seconds, and the most that running calls may write"
    ),
    "concurrent_calls": LimitWords("Calls at once", "", "calls that run now"),
    "tokens_per_day": LimitWords("Tokens", "a day", "input and output tokens since midnight UTC"),
}  # fmt: skip

# tone and icon of a badge, beside its words
CIRCUITS = {
    Circuit.CLOSED: ("green", "check", "closed", "Calls are let through as the limits allow"),
    Circuit.OPEN: ("red", "ban", "open", "The retry budget is empty: nothing is sent for a while"),
    Circuit.HALF_OPEN: ("amber", "pausing", "half open", "One call tries: its answer closes it, a failure opens it"),
}  # fmt: skip

NOTICES = {
    NoticeKind.REFUSED: ("red", "ban", "refused"),
    NoticeKind.CIRCUIT_OPENED: ("red", "alert", "circuit opened"),
    NoticeKind.HALF_OPENED: ("amber", "pausing", "half open"),
    NoticeKind.CLOSED: ("green", "check", "circuit closed"),
    NoticeKind.LIMIT_LEARNED: ("blue", "bolt", "limit learned"),
    NoticeKind.LIMIT_SET: ("violet", "person", "setting"),
    NoticeKind.FALLBACK: ("amber", "branch", "fallback"),
}
