"""The scratchpad of a line of history, as it is and as it was. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.domain.diffs import unified_diff
from workspaces.models import Branch, ScratchpadEdit

from .history import Span, line_of, on_line

VERSIONS_LISTED = 50


@dataclass(frozen=True, slots=True)
class Version:
    """`diff`: a unified diff from the version before, empty for what did not change."""

    edit: ScratchpadEdit
    diff: str
    added_lines: int
    removed_lines: int
    is_newest: bool


def pad_at(branch: Branch, seq: int | None = None) -> dict[str, str]:
    """Section → text on a line of history: at its end, or as of a `seq` of the task that the branch belongs to."""
    return pad_on(_until(line_of(branch), seq))


def pad_on(spans: Sequence[Span]) -> dict[str, str]:
    """The same, of spans that the caller has already. One query."""
    order = {span.branch_id: place for place, span in enumerate(spans)}
    newest: dict[str, tuple[tuple[int, int], str]] = {}
    rows = (
        ScratchpadEdit.objects.filter(on_line(list(spans)))
        .order_by("branch_id", "section", "-seq")
        .distinct("branch_id", "section")
        .values_list("branch_id", "section", "seq", "text")
    )
    for branch_id, section, seq, text in rows:
        place = (order[branch_id], seq)
        if section not in newest or place > newest[section][0]:
            newest[section] = (place, text)
    return {section: text for section, (_, text) in newest.items() if text}


def _until(spans: list[Span], seq: int | None) -> list[Span]:
    """Cut at a seq of the last span's task; an abandoned stretch is not on the line, whatever its numbers."""
    if seq is None:
        return spans
    own = spans[-1].task_id
    return [
        Span(span.branch_id, span.task_id, seq if span.last_seq is None else min(seq, span.last_seq))
        if span.task_id == own
        else span
        for span in spans
    ]


def versions_of(branch: Branch, section: str, *, limit: int = VERSIONS_LISTED) -> tuple[list[Version], int]:
    """(the newest versions of a section on a line, newest first, each with what it changed; how many there are)"""
    spans = line_of(branch)
    order = {span.branch_id: place for place, span in enumerate(spans)}
    rows = ScratchpadEdit.objects.filter(on_line(spans), section=section)
    keys = sorted(rows.values_list("branch_id", "seq", "pk"), key=lambda row: (order[row[0]], row[1]), reverse=True)
    wanted = [pk for _, _, pk in keys[: limit + 1]]  # one more: what the last of them is compared with
    found = rows.select_related("actor", "branch").in_bulk(wanted)
    listed: list[Version] = []
    for place, pk in enumerate(wanted[:limit]):
        before = found[wanted[place + 1]].text if place + 1 < len(wanted) else ""
        diff = unified_diff(_ended(before), _ended(found[pk].text), section)
        lines = diff.split("\n")[2:]
        listed.append(
            Version(
                found[pk],
                diff,
                added_lines=sum(line.startswith("+") for line in lines),
                removed_lines=sum(line.startswith("-") for line in lines),
                is_newest=place == 0,
            )
        )
    return listed, len(keys)


def _ended(text: str) -> str:
    """Notes are lines, and none of them is less of a line for standing last."""
    return f"{text}\n" if text and not text.endswith("\n") else text


def authors_of(branch: Branch) -> dict[str, ScratchpadEdit]:
    """Section → its newest version without the text, for each section that is there. One query."""
    spans = line_of(branch)
    order = {span.branch_id: place for place, span in enumerate(spans)}
    rows = (
        ScratchpadEdit.objects.filter(on_line(spans))
        .defer("text")
        .select_related("actor")
        .order_by("branch_id", "section", "-seq")
        .distinct("branch_id", "section")
    )
    newest: dict[str, ScratchpadEdit] = {}
    for edit in rows:
        held = newest.get(edit.section)
        if held is None or (order[edit.branch_id], edit.seq) > (order[held.branch_id], held.seq):
            newest[edit.section] = edit
    return newest
