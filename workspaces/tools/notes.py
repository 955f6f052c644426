"""note: the agent's own durable memory of the task, in named sections. Never touches the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaces.domain.effects import Effect
from workspaces.domain.scratchpad import (
    GROWING,
    MAX_SECTION_CHARS,
    SECTIONS,
    Outcome,
    added,
    attempt_entry,
    contradiction_entry,
)
from workspaces.domain.text import clean_text
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure

MAX_PART_CHARS = 4_000


def _words(description: str, most: int = MAX_PART_CHARS) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description}


class Note:
    spec = ToolSpec(
        name="note",
        description=(
            "Keep something for later: notes survive everything, also when older messages are summarised. "
            "plan and exit_condition are replaced by text; attempts, contradictions and notes grow by it. "
            "For attempts give attempt, outcome and why; for contradictions give claim, against and seen. "
            "replace=true rewrites a growing section. read=true reads a section whole and changes nothing."
        ),
        parameters={
            "type": "object",
            "properties": {
                "section": {"type": "string", "enum": list(SECTIONS)},
                "text": _words("What to note.", MAX_SECTION_CHARS),
                "attempt": _words("attempts: what was tried."),
                "outcome": {"type": "string", "enum": [outcome.value for outcome in Outcome]},
                "why": _words("attempts: why it worked, failed or is unclear."),
                "claim": _words("contradictions: what one source says."),
                "against": _words("contradictions: what another says."),
                "seen": _words("contradictions: where both were seen."),
                "replace": {"type": "boolean", "description": "Rewrite the section instead of adding to it."},
                "read": {"type": "boolean", "description": "Read the section; nothing is changed."},
            },
            "required": ["section"],
            "additionalProperties": False,
        },
        effect=Effect.NONE,
        needs_sandbox=False,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        section = str(arguments["section"])
        if section not in SECTIONS:
            return failure(f"there is no section {section!r}; there are {', '.join(SECTIONS)}")
        before = context.notes.read().get(section, "").strip()
        if arguments.get("read", False):
            return ToolResult(before or f"Nothing is noted in {section}.", data={"section": section})
        entry, problem = _entry(section, {key: clean_text(str(value)).strip() for key, value in arguments.items()})
        if problem:
            return failure(problem, "Nothing was noted.")
        adds = section in GROWING and not arguments.get("replace", False)
        text = added(before, entry) if adds else entry
        if len(text) > MAX_SECTION_CHARS:
            return failure(
                f"the section {section} would have {len(text)} characters, more than {MAX_SECTION_CHARS}",
                "Rewrite it shorter with replace=true. Nothing was changed.",
            )
        context.notes.write(section, text)
        done = "added to" if adds else "written to"
        return ToolResult(f"Noted: {done} {section}, now {len(text)} characters.", data={"section": section})


def _entry(section: str, given: Mapping[str, str]) -> tuple[str, str]:
    """(what is to stand in the section, what is wrong)"""
    text = given.get("text", "")
    named = [key for key in ("attempt", "outcome", "why") if given.get(key)]
    claims = [key for key in ("claim", "against", "seen") if given.get(key)]
    if named and section != "attempts":
        return "", f"{' and '.join(named)} belong to the section attempts, not to {section}"
    if claims and section != "contradictions":
        return "", f"{' and '.join(claims)} belong to the section contradictions, not to {section}"
    if (named or claims) and text:
        return "", f"give either text or {' and '.join(named or claims)}, not both"
    if named:
        if "attempt" not in named or "outcome" not in named:
            return "", "an attempt needs attempt (what was tried) and outcome (worked, failed or unclear)"
        return attempt_entry(given["attempt"], Outcome(given["outcome"]), given.get("why", "")), ""
    if claims:
        if "claim" not in claims or "against" not in claims:
            return "", "a contradiction needs claim and against: the two things that cannot both hold"
        return contradiction_entry(given["claim"], given["against"], given.get("seen", "")), ""
    return text, "" if text else "the text is empty"
