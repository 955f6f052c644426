"""Writes a task's scratchpad and keeps each version. Rollback and fork write none: their line has the versions."""

from __future__ import annotations

from typing import Any

from workspaces.domain.events import EXCERPT_CHARS, EventKind
from workspaces.domain.scratchpad import SECTIONS, Author
from workspaces.domain.states import WHY_NOT, TaskStatus
from workspaces.domain.text import clean_text, clip
from workspaces.models import ScratchpadEdit, User
from workspaces.queries.history import line_of, on_line

from .errors import Refused
from .pen import Pen, writing
from .words import NOTE_CHARS, taken

SECTION_CHARS = 80


def write_note(
    task_id: int,
    *,
    section: str,
    text: str,
    actor: User | None = None,
    fence: int | None = None,
    step: int | None = None,
) -> None:
    """Replace a section of the scratchpad; by an operator (`actor`) or the agent (`fence`). Raises Refused.

    What is there already is not written again: a call that is run again after a crash leaves one version.
    """
    if actor is not None:
        section, text = taken(section, "section's name", SECTION_CHARS), taken(text, "note", NOTE_CHARS)
    with writing(task_id, fence=fence, actor=actor) as pen:
        if actor is not None:
            _open_to_people(pen)
            section = _known(pen, section)
        if _write(pen, section, text, step=step) and actor is not None:
            pen.audit("task.note", section=section)


def restore_note(task_id: int, *, seq: int, section: str, reason: str, actor: User) -> None:
    """A section as it was from the event at `seq` on, as a new version. Raises Refused."""
    reason = taken(reason, "reason")
    if not reason:
        raise Refused("Say why you take the older version: the reason is kept in the audit log.")
    with writing(task_id, actor=actor) as pen:
        _open_to_people(pen)
        line = on_line(line_of(pen.branch))
        older = ScratchpadEdit.objects.filter(line, seq=seq, section=section).order_by("-pk").first()
        if older is None:
            raise Refused(f"There is no version of {section} from event {seq} on this line of history.")
        if not _write(pen, section, older.text, restored=seq):
            raise Refused(f"{section} reads like that already: nothing was changed.")
        pen.audit("task.note_restore", reason=reason, section=section, seq=seq)


def _open_to_people(pen: Pen) -> None:
    if TaskStatus(pen.task.status).is_final:
        raise Refused(f"The scratchpad is closed: {WHY_NOT[TaskStatus(pen.task.status)]}.")


def _known(pen: Pen, section: str) -> str:
    """One of the sections that the agent knows, or one that stands there from before."""
    name = "_".join(section.lower().split())
    if name in SECTIONS:
        return name
    if section in pen.task.scratchpad:
        return section
    raise Refused(f"There is no section {clip(section, 40)!r}; there are {', '.join(SECTIONS)}.")


def _write(pen: Pen, section: str, text: str, *, step: int | None = None, **data: Any) -> bool:
    """The new version, its event, and the section in the task's row. False: it reads like that already."""
    section, text = clean_text(section), clean_text(text)
    if not text.strip():
        text = ""
    if pen.task.scratchpad.get(section, "") == text:
        return False
    pad = {**pen.task.scratchpad, section: text}
    if not text:
        pad.pop(section)
    pen.set(scratchpad=pad)
    by = (Author.OPERATOR if pen.actor is not None else Author.AGENT).value
    seq = pen.event(EventKind.NOTE_WRITTEN, step=step, section=section, text=clip(text, EXCERPT_CHARS), by=by, **data)
    ScratchpadEdit.objects.create(
        task=pen.task,
        branch_id=pen.task.current_branch_id,
        seq=seq,
        section=section,
        text=text,
        by=by,
        actor=pen.actor,
        written_at=pen.now,
    )
    return True
