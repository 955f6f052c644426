"""The tool contract: a spec that model and gate read, a function that runs it. Never imports a tool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.schema import Problem, argument_problems
from workspaces.sandboxes.base import OutputSink, Sandbox


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What is known of a tool before it runs. `parameters` is the JSON Schema (2020-12) of its arguments.

    `effect_by` is there when the arguments decide the effect; `effect` is then the worst that is to be expected.
    `refuses` says what is wrong with arguments beyond their schema. Both are pure and get arguments that fit it.
    Without `needs_sandbox` nothing is woken for it; it may still read and write the workspace's files.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    timeout_s: float = 60.0
    needs_sandbox: bool = True
    effect_by: Callable[[Mapping[str, Any]], Effect] | None = None
    refuses: Callable[[Mapping[str, Any]], Sequence[Problem]] | None = None

    def effect_of(self, arguments: Mapping[str, Any]) -> Effect:
        """The effect of a call with these arguments, which have no problems."""
        return self.effect_by(arguments) if self.effect_by else self.effect

    def problems_of(self, arguments: Any) -> list[Problem]:
        """Why a call with these arguments cannot run: by the schema first, else by the tool's own rules."""
        found = argument_problems(self.parameters, arguments)
        return found or list(self.refuses(arguments) if self.refuses else ())


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`content` is what the model reads. `data` is for the desk (diff, exit code, …), JSON only.

    `control` asks the engine for what a tool cannot do: "finish" ends the task with `content` as its
    result, "ask_operator" waits for an answer to `content`.
    """

    content: str
    result_class: ResultClass = ResultClass.OK
    data: Mapping[str, Any] = field(default_factory=dict)
    control: Literal["", "finish", "ask_operator"] = ""


class OutcomeUnknown(Exception):
    """The request went out and no answer came: it cannot be told whether it was done. `str` says what is known.

    An effect outside the sandbox is then a person's matter; of any other, `otherwise` is the result.
    """

    def __init__(self, known: str, otherwise: ToolResult) -> None:
        super().__init__(known)
        self.otherwise = otherwise


class Notes(Protocol):
    """The task's scratchpad, as tools see it: named sections of text."""

    def read(self) -> Mapping[str, str]: ...

    def write(self, section: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a running tool is handed. `key` is unique to the call and the same when it is run again.

    `idempotency_key` is for the other side, which can refuse a double by it: for an effect outside the sandbox it is
    the same after a resume, a rollback and in a fork. Empty: it is the `key`.
    """

    key: str
    sandbox: Sandbox
    notes: Notes
    on_output: OutputSink | None = None
    interrupt: threading.Event | None = None
    output_limit_chars: int = 16_000
    idempotency_key: str = ""


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Arguments have already passed the schema. A tool's own failure is a ToolResult of class error.

        Raises only what the engine handles: SandboxUnavailable, SandboxGone, ExecInterrupted, OutcomeUnknown.
        """


ToolFactory = Callable[[], Tool]
