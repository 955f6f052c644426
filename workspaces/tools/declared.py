"""Declared tools: a command with a schema and an effect, which a profile adds. No Python of its runs here.

The command is run by `sh -c` in the sandbox, with the arguments as JSON on standard input and the effect's key
in AGENTDESK_IDEMPOTENCY_KEY, so that the other side can refuse a double.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from workspaces.domain.effects import Effect, canonical_json
from workspaces.domain.schema import schema_problems, show
from workspaces.domain.text import clean_text
from workspaces.sandboxes.base import SandboxError
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure, refused
from workspaces.tools.shell import MAX_TIMEOUT_S, command_result

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")  # what every vendor takes
DEFAULT_TIMEOUT_S = 60.0
MAX_DESCRIPTION_CHARS = 4_000
MAX_COMMAND_CHARS = 20_000
MAX_COMPENSATION_CHARS = 500
FIELDS = (
    *("name", "description", "parameters", "effect", "command", "timeout_s", "output_required"),
    "compensation",
)
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


class DeclarationError(ValueError):
    """A declaration that cannot be taken. `field` names the part to change."""

    def __init__(self, field: str, reason: str, tool: str = "") -> None:
        super().__init__(f"{f'tool {tool}: ' if tool else ''}{field}: {reason}")
        self.field = field
        self.reason = reason


class DeclaredTool:
    def __init__(self, spec: ToolSpec, command: str, *, output_required: bool) -> None:
        self.spec = spec
        self.command = command
        self.output_required = output_required

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any], taken: Iterable[str] = ()) -> DeclaredTool:
        """FIELDS, of which name, description, effect and command must be there. Raises DeclarationError.

        `taken`: names that are already some tool's. `compensation` (another tool's name, or words) is only told.
        """
        if not isinstance(declared, Mapping):
            raise DeclarationError("$", f"a declared tool is an object, not {show(declared)}")
        name = _name(declared.get("name"), taken)
        for unknown in [key for key in declared if key not in FIELDS]:
            raise DeclarationError(str(unknown), f"is not a field; known are {', '.join(FIELDS)}", name)
        spec = ToolSpec(
            name=name,
            description=_text(declared, "description", MAX_DESCRIPTION_CHARS, name),
            parameters=_parameters(declared.get("parameters", NO_ARGUMENTS), name),
            effect=_effect(declared.get("effect"), name),
            timeout_s=_timeout(declared.get("timeout_s", DEFAULT_TIMEOUT_S), name),
        )
        required = declared.get("output_required", False)
        if not isinstance(required, bool):
            raise DeclarationError("output_required", f"must be true or false, not {show(required)}", name)
        if "compensation" in declared:
            _text(declared, "compensation", MAX_COMPENSATION_CHARS, name)
        command = _text(declared, "command", MAX_COMMAND_CHARS, name)
        return cls(spec, command, output_required=required)

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            stdin = canonical_json(dict(arguments)).encode()
        except ValueError as error:  # UnicodeEncodeError is one
            return failure(f"the arguments cannot be written as JSON: {error}; nothing was run")
        try:
            ended = context.sandbox.exec(
                ["sh", "-c", self.command],
                key=context.key,
                stdin=stdin,
                env={
                    "AGENTDESK_IDEMPOTENCY_KEY": context.idempotency_key or context.key,
                    "AGENTDESK_TOOL": self.spec.name,
                },
                timeout_s=self.spec.timeout_s,
                on_output=context.on_output,
                interrupt=context.interrupt,
            )
        except SandboxError as error:
            return refused(error)
        return command_result(
            context,
            ended,
            self.spec.timeout_s,
            output_required=self.output_required,
            may_write=self.spec.effect.touches_disk,
        )


def _name(value: Any, taken: Iterable[str]) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        rule = "must be a letter, then at most 63 letters, digits, _ or -"
        raise DeclarationError("name", f"{rule}, not {show(value)}")
    clash = next((name for name in taken if name.casefold() == value.casefold()), None)
    if clash:
        raise DeclarationError("name", f"there is already a tool named {clash}", value)
    return value


def _text(declared: Mapping[str, Any], field: str, limit: int, name: str) -> str:
    value = declared.get(field)
    if not isinstance(value, str) or not value.strip():
        raise DeclarationError(field, "must be a text that is not empty", name)
    if len(value) > limit:
        raise DeclarationError(field, f"has {len(value)} characters, at most {limit}", name)
    if clean_text(value) != value:
        raise DeclarationError(field, "holds a NUL character or half of a surrogate pair", name)
    return value


def _effect(value: Any, name: str) -> Effect:
    choices = [effect.value for effect in Effect]
    if value not in choices:
        raise DeclarationError("effect", f"must be one of {', '.join(choices)}, not {show(value)}", name)
    return Effect(value)


def _timeout(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TIMEOUT_S:
        raise DeclarationError("timeout_s", f"must be seconds, more than 0 and at most {MAX_TIMEOUT_S}", name)
    return float(value)


def _parameters(value: Any, name: str) -> Mapping[str, Any]:
    problems = schema_problems(value)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise DeclarationError("parameters", f"{problems[0]}{more}", name)
    return dict(value)
