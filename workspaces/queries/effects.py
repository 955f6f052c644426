"""Effects that a rollback or a fork leaves standing, with what the profile declares against each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.domain.text import clip
from workspaces.models import Checkpoint, LedgerEntry, ProfileVersion

from .history import effects_since

TOLD_ARGUMENTS_CHARS = 300
MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """`compensation`: another tool of the profile (`is_tool`), or words; empty: none is declared."""

    entry: LedgerEntry
    compensation: str = ""
    is_tool: bool = False

    @property
    def is_unknown(self) -> bool:
        return self.entry.state in (LedgerEntry.State.INTENDED, LedgerEntry.State.UNKNOWN)

    @property
    def arguments(self) -> str:
        """Those that it was made with: an operator may have edited what the agent proposed."""
        call = self.entry.tool_call
        return call.raw_arguments if call.proposed_arguments is None else json.dumps(call.arguments, ensure_ascii=False)

    @property
    def against(self) -> str:
        """As a sentence for the agent and the page."""
        if not self.compensation:
            return "No compensation is declared."
        return f"Its declared compensation is the tool {self.compensation}." if self.is_tool else self.compensation


def standing_since(checkpoint: Checkpoint) -> list[Standing]:
    """Completed and unknown effects of the task after a checkpoint, oldest first."""
    declared = compensations_of(checkpoint.task.profile_version)
    found = []
    for entry in effects_since(checkpoint):
        compensation, is_tool = declared.get(entry.tool_call.name, ("", False))
        found.append(Standing(entry, compensation, is_tool))
    return found


def compensations_of(version: ProfileVersion) -> dict[str, tuple[str, bool]]:
    """Tool → its compensation, and whether that is a tool of the profile as well."""
    names = {*version.tools, *(tool["name"] for tool in version.declared_tools)}
    written = {tool["name"]: tool.get("compensation", "").strip() for tool in version.declared_tools}
    return {name: (words, words in names) for name, words in written.items() if words}


def words_for_the_agent(standing: Sequence[Standing], *, forked: bool) -> str:
    """What the agent is told of effects that its conversation no longer holds."""
    whose = "on the task that this one was forked from" if forked else "before the task was rolled back"
    lines = [f"These effects outside the sandbox were made {whose}. They stand:"]
    for each in standing[:MOST_TOLD]:
        call = each.entry.tool_call
        state = "its outcome is not known" if each.is_unknown else "done"
        lines.append(f"- {call.name} {clip(each.arguments, TOLD_ARGUMENTS_CHARS)}: {state}. {each.against}")
    if len(standing) > MOST_TOLD:
        lines.append(f"- and {len(standing) - MOST_TOLD} more")
    lines.append("The very same call again gives the recorded result and makes no second effect.")
    return "\n".join(lines)
