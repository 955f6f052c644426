"""ask_operator, finish: what only the engine can do, by `ToolResult.control`. Never touch the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaces.domain.effects import Effect
from workspaces.domain.text import clean_text
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure

MAX_WORDS_CHARS = 20_000


def _one_text(name: str, description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_WORDS_CHARS,
                "description": description,
            }
        },
        "required": [name],
        "additionalProperties": False,
    }


class AskOperator:
    spec = ToolSpec(
        name="ask_operator",
        description=(
            "Ask a person, and wait for the answer. For what only a person can decide or know: a choice that "
            "the instruction leaves open, a missing secret, a contradiction. Not for what the files can tell."
        ),
        parameters=_one_text("question", "The question, with what has to be known to answer it."),
        effect=Effect.NONE,
        needs_sandbox=False,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        question = clean_text(str(arguments["question"])).strip()
        if not question:
            return failure("the question is empty: nobody was asked")
        return ToolResult(question, control="ask_operator")


class Finish:
    spec = ToolSpec(
        name="finish",
        description=(
            "End the task with a summary: what was done and checked, and what was not. Only when nothing is "
            "left to do; call it alone, after the results of all other calls were read."
        ),
        parameters=_one_text("summary", "The task's result, as the person who asked for it will read it."),
        effect=Effect.NONE,
        needs_sandbox=False,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        summary = clean_text(str(arguments["summary"])).strip()
        if not summary:
            return failure("the summary is empty: the task was not ended")
        return ToolResult(summary, control="finish")
