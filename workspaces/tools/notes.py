"""note: the agent's own durable memory of the task, in named sections. Never touches the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaces.domain.effects import Effect
from workspaces.domain.text import clean_text
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure

SECTIONS = ("plan", "attempts", "contradictions", "exit_condition", "notes")
GROWING = frozenset({"attempts", "contradictions", "notes"})  # a new entry does not undo the old ones
MAX_SECTION_CHARS = 20_000


class Note:
    spec = ToolSpec(
        name="note",
        description=(
            "Keep something for later: notes survive everything, also when older messages are summarised. "
            "plan and exit_condition are replaced by the new text; attempts (what was tried and why it "
            "failed), contradictions and notes grow by it. replace=true rewrites a growing section."
        ),
        parameters={
            "type": "object",
            "properties": {
                "section": {"type": "string", "enum": list(SECTIONS)},
                "text": {"type": "string", "minLength": 1, "maxLength": MAX_SECTION_CHARS},
                "replace": {"type": "boolean", "description": "Rewrite the section instead of adding to it."},
            },
            "required": ["section", "text"],
            "additionalProperties": False,
        },
        effect=Effect.NONE,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        section, text = str(arguments["section"]), clean_text(str(arguments["text"])).strip()
        if section not in SECTIONS:
            return failure(f"there is no section {section!r}; there are {', '.join(SECTIONS)}")
        if not text:
            return failure("the text is empty: nothing was noted")
        before = context.notes.read().get(section, "").strip()
        adds = section in GROWING and not arguments.get("replace", False)
        if adds and before:
            # run again after a crash, the entry is already there
            text = before if before == text or before.endswith(f"\n{text}") else f"{before}\n{text}"
        if len(text) > MAX_SECTION_CHARS:
            return failure(
                f"the section {section} would have {len(text)} characters, more than {MAX_SECTION_CHARS}",
                "Rewrite it shorter with replace=true. Nothing was changed.",
            )
        context.notes.write(section, text)
        done = "added to" if adds else "written to"
        return ToolResult(f"Noted: {done} {section}, now {len(text)} characters.", data={"section": section})
