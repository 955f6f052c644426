"""A compaction's receipt as a page shows it: what went and from where, and whether what is pinned is still there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workspaces.domain.compaction import missing, pinned_of
from workspaces.domain.events import EventKind
from workspaces.models import Event, Message, ModelCall, Step, Summary, Task

from .context_pages import Origin
from .contexts import NotRebuilt, request_of

GONE_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Gone:
    """A message that is sent shorter from then on."""

    origin: Origin | None
    role: str
    before: int  # tokens, estimated
    after: int
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class PinnedPart:
    """`now`: how it stands in the request of that step, made again: "there", "changed", "missing", or "unknown"."""

    what: str
    origin: Origin | None
    sha256: str
    now: str


@dataclass(frozen=True, slots=True)
class Receipt:
    event: Event
    step: Step | None
    data: Mapping[str, Any]
    offloaded: list[Gone]
    clipped: list[Gone]
    gone_more: int  # that are not listed
    pinned: list[PinnedPart]
    exact: bool | None  # the request that followed equals what was sent; None: it cannot be made again
    summary: Summary | None
    calls: list[tuple[ModelCall, str]]  # for summaries; with why one was refused, else ""

    @property
    def saved_percent(self) -> float:
        before = int(self.data.get("tokens_before") or 0)
        return round(100 * (before - int(self.data.get("tokens_after") or 0)) / before, 1) if before else 0.0

    @property
    def all_pinned_there(self) -> bool:
        return all(part.now == "there" for part in self.pinned)


def receipt_of(task: Task, seq: int) -> Receipt | None:
    """Of the compaction at a seq of the task. None when there was none."""
    event = Event.objects.filter(task=task, seq=seq, kind=EventKind.CONTEXT_COMPACTED.value).first()
    if event is None:
        return None
    data = event.data
    step = (
        Step.objects.filter(branch__task=task, branch__number=event.branch_number, number=event.step_number or 0)
        .select_related("branch")
        .first()
    )
    offloaded, clipped, pinned = (list(data.get(key) or ()) for key in ("offloaded", "clipped", "pinned"))
    origins, roles = _messages(
        [item["message"] for item in [*offloaded[:GONE_SHOWN], *clipped[:GONE_SHOWN], *pinned] if item.get("message")]
    )
    refusals = {item["model_call"]: item["why"] for item in data.get("refused") or ()}
    wanted = [*((data.get("summarised") or {}).get("model_calls") or ()), *refusals]
    parts, exact = _pinned_now(step, pinned, origins)
    return Receipt(
        event=event,
        step=step,
        data=data,
        offloaded=[_gone(item, origins, roles) for item in offloaded[:GONE_SHOWN]],
        clipped=[_gone(item, origins, roles) for item in clipped[:GONE_SHOWN]],
        gone_more=max(0, len(offloaded) - GONE_SHOWN) + max(0, len(clipped) - GONE_SHOWN),
        pinned=parts,
        exact=exact,
        summary=Summary.objects.filter(task=task, seq=seq).first(),
        calls=[
            (call, refusals.get(call.pk, ""))
            for call in ModelCall.objects.filter(task=task, pk__in=wanted).order_by("pk")
        ],
    )


def _messages(ids: list[int]) -> tuple[dict[int, Origin], dict[int, str]]:
    rows = list(Message.objects.filter(pk__in=ids).values_list("pk", "task_id", "seq", "tokens", "role"))
    return {pk: Origin(task, seq, tokens) for pk, task, seq, tokens, _ in rows}, {row[0]: row[4] for row in rows}


def _gone(item: Mapping[str, Any], origins: Mapping[int, Origin], roles: Mapping[int, str]) -> Gone:
    message = item.get("message") or 0
    return Gone(
        origins.get(message),
        roles.get(message, ""),
        int(item.get("tokens_before") or 0),
        int(item.get("tokens_after") or 0),
        str(item.get("path") or ""),
        str(item.get("why") or ""),
    )


def _pinned_now(
    step: Step | None, told: list[Mapping[str, Any]], origins: Mapping[int, Origin]
) -> tuple[list[PinnedPart], bool | None]:
    """Each pinned part of the receipt, looked for in the request that was sent after it."""
    exact: bool | None = None
    there: dict[str, str] = {}
    lost: set[str] = set()
    if step is not None:
        try:
            rebuilt = request_of(step)
        except NotRebuilt:
            pass
        else:
            built, exact = rebuilt.built, rebuilt.exact
            now = pinned_of(built.history, system=built.system, notes=built.notes)
            lost = {part.what for part in missing(now, [message.content for message in built.request.messages])}
            there = {part.what: hashlib.sha256(part.text.encode()).hexdigest()[:16] for part in now}

    def stands(item: Mapping[str, Any]) -> str:
        if exact is None:
            return "unknown"
        if item["what"] in lost or item["what"] not in there:
            return "missing"
        return "there" if there[item["what"]] == item["sha256"] else "changed"

    parts = [
        PinnedPart(item["what"], origins.get(item.get("message") or 0), item["sha256"], stands(item)) for item in told
    ]
    return parts, exact
