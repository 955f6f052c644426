"""What is watched for alerts rather than signalled: how often it is looked at, and the thresholds of its rules. Pure.

A rule keeps thresholds that differ from the defaults in `params`, by name; what is missing there, or no number, is the
default, and what is out of bounds is the nearest bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workspaces.domain.alerts import AlertKind

PACE_S: dict[AlertKind, float] = {
    AlertKind.QUOTA_EXHAUSTED: 2,
    AlertKind.WORKER_UNHEALTHY: 5,
    AlertKind.QUEUE_UNHEALTHY: 5,
    AlertKind.SANDBOX_UNHEALTHY: 5,
    AlertKind.TASK_STUCK: 15,
    AlertKind.QUOTA_PREDICTED: 30,
    AlertKind.SPEND_RATE: 60,
}
# how the subjects begin that the watch itself begins and ends; others of the kind are left to who signals them
WATCHED_SUBJECTS: dict[AlertKind, tuple[str, ...]] = {
    AlertKind.QUOTA_EXHAUSTED: ("pool:",),
    AlertKind.WORKER_UNHEALTHY: ("workers", "worker:", "scheduler"),
    AlertKind.QUEUE_UNHEALTHY: ("queue:",),
    AlertKind.SANDBOX_UNHEALTHY: ("node:",),
    AlertKind.TASK_STUCK: ("task:",),
    AlertKind.QUOTA_PREDICTED: ("pool-day:",),
    AlertKind.SPEND_RATE: ("spending:",),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that a rule may set. `words` complete "Alerts when …"; {} is the number."""

    name: str
    label: str
    unit: str
    default: float
    least: float
    most: float
    words: str

    def of(self, params: Mapping[str, Any]) -> float:
        value = params.get(self.name)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            return self.default
        return min(max(value, self.least), self.most)


STUCK_MINUTES = Threshold(
    "stuck_minutes",
    "Without an event for",
    "minutes",
    *(30, 1, 10_080),
    "a task that should go on has had no event for {} minutes",
)
EXHAUSTED_S = Threshold(
    "exhausted_seconds",
    "Calls wait for",
    "seconds",
    *(60, 0, 86_400),
    "a call has waited for room in a pool for {} seconds, or the pool is held back",
)
PREDICTED_MINUTES = Threshold(
    "predicted_minutes",
    "Used up within",
    "minutes",
    *(60, 5, 1_440),
    "a pool's tokens of the day would be used up within {} minutes at the present rate",
)
SPEND_FACTOR = Threshold(
    "spend_factor",
    "Times the usual",
    "times",
    *(3, 1.1, 1_000),
    "a user's last hour cost {} times what is usual",
)
SPEND_LEAST_USD = Threshold(
    "spend_least_usd",
    "And at least",
    "USD",
    *(5, 0.01, 1_000_000),
    "a user's last hour cost at least {} USD",
)
SILENT_S = Threshold(
    "silent_seconds",
    "Not seen for",
    "seconds",
    *(30, 15, 3_600),
    "a worker or the scheduler was not seen for {} seconds",
)
DUE_S = Threshold(
    "due_seconds",
    "Not taken up for",
    "seconds",
    *(120, 10, 86_400),
    "a task that is due, or a signal of an alert, was not taken up for {} seconds",
)
NODE_S = Threshold(
    "node_seconds",
    "A node fails for",
    "seconds",
    *(30, 0, 3_600),
    "a sandbox fails, or the node that it runs on has not answered for {} seconds",
)

THRESHOLDS: dict[AlertKind, tuple[Threshold, ...]] = {
    AlertKind.TASK_STUCK: (STUCK_MINUTES,),
    AlertKind.QUOTA_EXHAUSTED: (EXHAUSTED_S,),
    AlertKind.QUOTA_PREDICTED: (PREDICTED_MINUTES,),
    AlertKind.SPEND_RATE: (SPEND_FACTOR, SPEND_LEAST_USD),
    AlertKind.WORKER_UNHEALTHY: (SILENT_S,),
    AlertKind.QUEUE_UNHEALTHY: (DUE_S,),
    AlertKind.SANDBOX_UNHEALTHY: (NODE_S,),
}
