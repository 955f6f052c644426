"""What is watched of the site itself: its workers and scheduler, what waits for them, and its nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workspaces.domain.alert_watches import Trouble, duration
from workspaces.domain.alerts import AlertKind, Edge, Happening
from workspaces.domain.incidents import Severity
from workspaces.domain.states import ProcessRole

K = AlertKind


@dataclass(frozen=True, slots=True)
class Process:
    """Seen lately. Times in seconds since 1970. `ending`: it was told to end."""

    role: ProcessRole
    host: str
    name: str
    started_s: float
    seen_s: float
    ending: bool = False


CRASHES = 3
CRASHES_WITHIN_S = 600.0


def silent(processes: Sequence[Process], *, seconds: float, since_s: float, now_s: float) -> list[Trouble]:
    """No worker at all; a host on which one stopped in the midst and none took its place, or where they keep stopping;
    no scheduler. Until somebody has looked for `seconds` without a gap, nobody is missed.
    """
    if now_s - since_s < seconds:
        return []
    found = []
    workers = [each for each in processes if each.role is ProcessRole.WORKER]
    if not any(_lives(each, seconds, now_s) for each in workers):
        last = max((each.seen_s for each in workers), default=None)
        words = f"the last one was seen {duration(now_s - last)} ago" if last is not None else "none was seen lately"
        found.append(
            _of_the_site(
                K.WORKER_UNHEALTHY,
                "workers",
                Severity.CRITICAL,
                f"No worker lives ({words}). No task goes on until one is started.",
                now_s,
                {"last_seen_s": round(last) if last is not None else None},
            )
        )
    for host in sorted({each.host for each in workers}):
        here = [each for each in workers if each.host == host]
        missing, crashes = _missing(here, seconds, now_s), _crashes(here, seconds, now_s)
        if not missing and crashes < CRASHES:
            continue
        if missing:
            names = ", ".join(each.name for each in missing[:3]) + (" and more" if len(missing) > 3 else "")
            ago = duration(now_s - min(each.seen_s for each in missing))
            words = (
                f"A worker on {host} stopped in the midst and none has taken its place: {names}, last seen {ago} ago."
            )
        else:
            words = f"Workers on {host} keep stopping in the midst: {crashes} within {duration(CRASHES_WITHIN_S)}."
        detail = "missing" if missing else "crashes"
        data = {"host": host, "missing": len(missing), "crashes": crashes}
        found.append(
            _of_the_site(K.WORKER_UNHEALTHY, f"worker:{host}"[:64], Severity.ERROR, words, now_s, data, detail)
        )
    schedulers = [each for each in processes if each.role is ProcessRole.SCHEDULER]
    if not any(_lives(each, seconds, now_s) for each in schedulers):
        last = max((each.seen_s for each in schedulers), default=None)
        ago = f"{duration(now_s - last)} ago" if last is not None else "never, lately"
        words = (
            f"No scheduler lives, or a part of its work fails (last seen in order: {ago}). Waits do not end and"
            " questions do not expire until one works."
        )
        found.append(_of_the_site(K.WORKER_UNHEALTHY, "scheduler", Severity.CRITICAL, words, now_s))
    return found


def _lives(process: Process, seconds: float, now_s: float) -> bool:
    """Also one that was told to end: what takes its place may take a while to start."""
    return now_s - process.seen_s <= seconds


def _missing(here: Sequence[Process], seconds: float, now_s: float) -> list[Process]:
    """Those that fell silent untold, as far as no later one on their host took their place, each one's alone."""
    starts = sorted(each.started_s for each in here)
    missing = []
    for process in sorted(here, key=lambda each: -each.seen_s):  # the last can only be followed by the newest
        if process.ending or now_s - process.seen_s <= seconds:
            continue
        if starts and starts[-1] >= process.seen_s:
            starts.pop()
        else:
            missing.append(process)
    return missing


def _crashes(here: Sequence[Process], seconds: float, now_s: float) -> int:
    return sum(1 for p in here if not p.ending and seconds < now_s - p.seen_s <= CRASHES_WITHIN_S)


@dataclass(frozen=True, slots=True)
class Queue:
    """Times in seconds since 1970; None: nothing waits. `due_s`: the oldest task that is due. `signal_s`: the oldest
    signal of alerts that nobody digested. `unread`: conditions that are watched and cannot be read, and since when."""

    due: int
    due_s: float | None
    signals: int
    signal_s: float | None
    broker_answers: bool
    unread: Sequence[tuple[str, float]] = ()


def clogged(queue: Queue, *, seconds: float, since_s: float, now_s: float) -> list[Trouble]:
    found = []
    waited_s = now_s - max(queue.due_s, since_s) if queue.due_s is not None else 0.0
    if queue.due and waited_s >= seconds:
        words = (
            f"{queue.due:,} task{' is' if queue.due == 1 else 's are'} due and no worker took the first up for"
            f" {duration(waited_s)}: the workers are too few, busy or stuck."
        )
        found.append(
            _of_the_site(K.QUEUE_UNHEALTHY, "queue:due", Severity.WARNING, words, now_s, {"due": queue.due}, "due")
        )
    if not queue.broker_answers:
        words = "Valkey, which carries calls to workers and what pages show live, does not answer."
        found.append(_of_the_site(K.QUEUE_UNHEALTHY, "queue:broker", Severity.ERROR, words, now_s, {}, "broker"))
    for kind, unread_s in queue.unread:
        if now_s - max(unread_s, since_s) >= seconds:
            words = f"Alerts of {kind} are not told: what they watch cannot be read. The log says why."
            found.append(
                _of_the_site(
                    K.QUEUE_UNHEALTHY, f"queue:watch-{kind}", Severity.ERROR, words, now_s, {"kind": kind}, "watch"
                )
            )
    waited_s = now_s - max(queue.signal_s, since_s) if queue.signal_s is not None else 0.0
    if queue.signals and waited_s >= seconds:
        words = f"Signals of alerts are not digested: {queue.signals:,} wait, the first for {duration(waited_s)}."
        data = {"signals": queue.signals}
        found.append(_of_the_site(K.QUEUE_UNHEALTHY, "queue:signals", Severity.ERROR, words, now_s, data, "signals"))
    return found


@dataclass(frozen=True, slots=True)
class FailingNode:
    """Times in seconds since 1970. `looked_s`: when somebody last asked it."""

    name: str
    failing_s: float
    looked_s: float
    error: str


def failing(
    nodes: Iterable[FailingNode], *, seconds: float, since_s: float, active: Collection[str], now_s: float
) -> list[Trouble]:
    """What was found before there was a gap is not known to be so still: it begins nothing, and ends nothing."""
    found = []
    for node in nodes:
        subject = f"node:{node.name}"
        fresh = node.looked_s >= since_s and now_s - node.failing_s >= seconds
        if not (fresh or subject in active):
            continue
        ago = duration(now_s - node.failing_s)
        words = f"The node {node.name}, which sandboxes run on, has not answered for {ago}: {node.error}"
        found.append(
            _of_the_site(K.SANDBOX_UNHEALTHY, subject, Severity.ERROR, words, now_s, {"node": node.name}, "node")
        )
    return found


def _of_the_site(
    kind: AlertKind,
    subject: str,
    severity: Severity,
    words: str,
    now_s: float,
    data: dict[str, Any] | None = None,
    detail: str = "",
) -> Trouble:
    happening = Happening(
        kind, Edge.BEGAN, subject, now_s, severity, words, detail or subject, cause=subject, data=data or {}
    )
    return Trouble(happening)
