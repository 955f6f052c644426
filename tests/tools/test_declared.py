"""Declared tools and the registry: clear refusals, and arguments that arrive as they were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass as R
from workspaces.domain.schema import argument_problems, schema_problems
from workspaces.tools.base import ToolResult
from workspaces.tools.declared import DeclarationError, DeclaredTool
from workspaces.tools.registry import BUILTIN_NAMES, build_tools

Call = Callable[..., ToolResult]

SEND: dict[str, Any] = {
    "name": "send_invoice",
    "description": "Send an invoice.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
    "effect": "irreversible",
    "command": "cat >> sent; printf '\\n%s' \"$AGENTDESK_IDEMPOTENCY_KEY\" >> sent; echo sent",
    "timeout_s": 20,
    "output_required": True,
}


def test_the_command_gets_its_arguments_as_json_and_the_calls_key(call: Call, sandbox: Any) -> None:
    tool = DeclaredTool.from_dict(SEND)
    assert tool.spec.effect is Effect.IRREVERSIBLE
    amount = {"amount": 12.5, "note": "für Zoë; $(touch owned) 'x' \"y\"\n"}
    found = call(tool, context={"key": "call-7"}, **amount)
    assert found.result_class is R.OK
    assert found.content == "(exit code 0)\nsent"
    arguments, key = sandbox.read("sent").decode().split("\n")
    assert json.loads(arguments) == amount
    assert key == "call-7"


def test_run_again_with_its_key_it_acts_once(call: Call, sandbox: Any) -> None:
    tool = DeclaredTool.from_dict(SEND)
    for _ in range(2):
        assert call(tool, context={"key": "call-8"}, amount=1).content == "(exit code 0)\nsent"
    assert sandbox.read("sent").count(b"amount") == 1


@pytest.mark.parametrize(
    ("command", "expected", "word"),
    [
        ("true", R.EMPTY, "printed nothing"),
        ("echo '{}'", R.EMPTY, "empty value"),
        ("echo no; exit 4", R.ERROR, "exit code 4"),
        ("nosuchprogram", R.ERROR, "not found"),
        ("sleep 30", R.TIMEOUT, "after 0.5 s"),
    ],
)
def test_an_end_without_an_answer_is_never_plain_success(call: Call, command: str, expected: R, word: str) -> None:
    tool = DeclaredTool.from_dict({**SEND, "command": command, "timeout_s": 0.5 if "sleep" in command else 20})
    found = call(tool, amount=1)
    assert found.result_class is expected
    assert found.content.startswith(f"[result: {expected.value} - ")
    assert word in found.content


def test_one_that_only_reads_never_writes_its_long_output(call: Call, sandbox: Any) -> None:
    tool = DeclaredTool.from_dict({**SEND, "effect": "none", "command": "seq 30000"})
    found = call(tool, amount=1)
    assert found.result_class is R.TRUNCATED
    assert "left out" in found.content
    assert sandbox.list() == []


def test_arguments_that_are_no_text_are_refused_before_it_runs(call: Call, sandbox: Any) -> None:
    found = call(DeclaredTool.from_dict(SEND), amount="\ud800")
    assert found.result_class is R.ERROR
    assert sandbox.list() == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "1st"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "send\n"}, "name"),
        ({"name": 7}, "name"),
        ({"name": "Read_File"}, "name"),
        ({"description": " "}, "description"),
        ({"description": "a\x00"}, "description"),
        ({"effect": "harmless"}, "effect"),
        ({"effect": None}, "effect"),
        ({"command": ""}, "command"),
        ({"command": ["ls"]}, "command"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"timeout_s": 1e9}, "timeout_s"),
        ({"output_required": "yes"}, "output_required"),
        ({"parameters": {"type": "array"}}, "parameters"),
        ({"parameters": {"type": "object", "properties": {"a": {"$ref": "https://x/y"}}}}, "parameters"),
        ({"comand": "ls"}, "comand"),
    ],
)
def test_a_wrong_declaration_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        build_tools([], [{**SEND, **change}])
    assert raised.value.field == field
    assert field in str(raised.value)


def test_what_has_to_be_there_is_missed_by_name() -> None:
    for field in ("name", "description", "effect", "command"):
        with pytest.raises(DeclarationError) as raised:
            DeclaredTool.from_dict({key: value for key, value in SEND.items() if key != field})
        assert raised.value.field == field
    with pytest.raises(DeclarationError):
        DeclaredTool.from_dict("send")  # type: ignore[arg-type]


def test_two_tools_cannot_have_one_name() -> None:
    with pytest.raises(DeclarationError, match="already a tool named send_invoice"):
        build_tools([], [SEND, {**SEND, "name": "SEND_invoice"}])


def test_a_tool_that_is_not_built_in_is_refused_with_the_nearest() -> None:
    with pytest.raises(DeclarationError, match="nearest: shell"):
        build_tools(["bash"], [])


def test_only_the_named_tools_are_built() -> None:
    assert list(build_tools(["shell", "finish"], [SEND])) == ["shell", "finish", "send_invoice"]


def test_every_built_in_schema_is_one_that_a_declared_tool_could_have() -> None:
    for tool in build_tools(BUILTIN_NAMES).values():
        assert schema_problems(tool.spec.parameters) == []
        assert argument_problems(tool.spec.parameters, {"no such argument": 1})


def test_the_effects_of_the_built_in_tools() -> None:
    found = {name: tool.spec.effect.value for name, tool in build_tools(BUILTIN_NAMES).items()}
    assert {name for name, effect in found.items() if effect == "workspace"} == {"write_file", "edit_file", "shell"}
    assert set(found.values()) == {"none", "workspace"}
