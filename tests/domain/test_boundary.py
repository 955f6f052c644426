"""The gate reads of a tool what its arguments decide: whether they can run, and what effect they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from workspaces.domain.boundary import judge
from workspaces.domain.effects import Effect
from workspaces.domain.replies import ProposedCall
from workspaces.domain.schema import Problem
from workspaces.domain.states import Verdict
from workspaces.tools.base import ToolSpec

BY_METHOD = {"GET": Effect.NONE, "POST": Effect.EXTERNAL, "DELETE": Effect.IRREVERSIBLE}


def no_secret_place(arguments: Mapping[str, Any]) -> list[Problem]:
    return [Problem("$.host", "is not on the list")] if arguments["host"] == "secret" else []


REQUEST = ToolSpec(
    name="request",
    description="Ask a server.",
    parameters={
        "type": "object",
        "properties": {"method": {"type": "string"}, "host": {"type": "string"}},
        "required": ["method", "host"],
    },
    effect=Effect.EXTERNAL,
    effect_by=lambda arguments: BY_METHOD[arguments["method"]],
    refuses=no_secret_place,
)


def proposed(**arguments: Any) -> ProposedCall:
    return ProposedCall("c1", "request", arguments, raw="")


@pytest.mark.parametrize(
    ("method", "effect", "verdict"),
    [
        ("GET", Effect.NONE, Verdict.ALLOW),
        ("POST", Effect.EXTERNAL, Verdict.ALLOW),
        ("DELETE", Effect.IRREVERSIBLE, Verdict.HOLD),
    ],
)
def test_the_arguments_decide_the_effect_where_the_tool_says_so(method: str, effect: Effect, verdict: Verdict) -> None:
    judged = judge(proposed(method=method, host="a"), {"request": REQUEST})
    assert (judged.effect, judged.verdict) == (effect, verdict)


def test_what_a_tool_itself_refuses_is_corrected_with_its_words_before_it_runs() -> None:
    judged = judge(proposed(method="GET", host="secret"), {"request": REQUEST})
    assert judged.verdict is Verdict.CORRECT
    assert "$.host: is not on the list" in judged.told


def test_a_tool_judges_only_arguments_that_fit_its_schema() -> None:
    judged = judge(proposed(method="GET"), {"request": REQUEST})
    assert judged.verdict is Verdict.CORRECT
    assert "host" in judged.told
