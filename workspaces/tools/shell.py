"""shell: a command line in the sandbox, its output live, its end named. Never runs anything on the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workspaces.domain.classify import Ended, of_command
from workspaces.domain.effects import Effect
from workspaces.domain.text import clean_text, clip, decode_output
from workspaces.sandboxes.base import ExecResult, SandboxError
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure, refused, result

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 3_600
MAX_COMMAND_BYTES = 100_000  # Linux takes 128 KiB in one argument
DATA_CHARS = 4_000  # of each stream, for the desk

_BASH_OR_SH = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi'


def argv_of(command: str) -> list[str]:
    """A command line as a program's arguments."""
    return ["sh", "-c", _BASH_OR_SH, "sh", command]


class Shell:
    spec = ToolSpec(
        name="shell",
        description=(
            "Run a command line (bash where there is one, else sh) in the workspace folder. Each call is a "
            "new shell: a cd or a variable does not last. There is no terminal and no input. The exit code, "
            "standard output and standard error come back; long output is kept in a file."
        ),
        parameters={
            "type": "object",
            "properties": {
                "command": {"type": "string", "minLength": 1},
                "timeout_s": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": MAX_TIMEOUT_S,
                    "description": f"Seconds until the command is killed; {DEFAULT_TIMEOUT_S} when left out.",
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        },
        effect=Effect.WORKSPACE,
        timeout_s=DEFAULT_TIMEOUT_S,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        command = str(arguments["command"])
        timeout_s = min(float(arguments.get("timeout_s") or DEFAULT_TIMEOUT_S), MAX_TIMEOUT_S)
        if clean_text(command) != command:
            return failure("the command holds a NUL character or half of a surrogate pair: nothing was run")
        if len(command.encode()) > MAX_COMMAND_BYTES:
            hint = "Write it to a file with write_file, then run the file. Nothing was run."
            return failure(f"the command is longer than {MAX_COMMAND_BYTES} bytes", hint)
        try:
            ended = context.sandbox.exec(
                argv_of(command),
                key=context.key,
                timeout_s=timeout_s,
                on_output=context.on_output,
                interrupt=context.interrupt,
            )
        except SandboxError as error:
            return refused(error)
        return command_result(context, ended, timeout_s)


def command_result(
    context: ToolContext, ended: ExecResult, timeout_s: float, *, output_required: bool = False, may_write: bool = True
) -> ToolResult:
    """A command's end as a result: the exit code first, then both streams, told apart.

    The content holds no time and nothing else that differs between equal runs: detectors compare it.
    """
    result_class, why = of_command(as_ended(ended, timeout_s), output_required=output_required)
    stdout, stderr = decode_output(ended.stdout), decode_output(ended.stderr)
    silent = not stdout and not stderr
    parts = []
    if not why.startswith("exit code") and ended.exit_code is not None:
        parts.append(f"(exit code {ended.exit_code}{', no output' if silent else ''})")
    if stdout:
        parts.append(stdout.rstrip("\n"))
    if stderr:
        parts += ["[standard error]", stderr.rstrip("\n")]
    data = {
        "exit_code": ended.exit_code,
        "timed_out": ended.timed_out,
        "duration_s": round(ended.duration_s, 3),
        "stdout": clip(stdout, DATA_CHARS),
        "stderr": clip(stderr, DATA_CHARS),
        "stdout_bytes": len(ended.stdout),
        "stderr_bytes": len(ended.stderr),
        "output_lost": ended.stdout_truncated or ended.stderr_truncated,
    }
    return result(context, "\n".join(parts), result_class, why, data, may_write=may_write)


def as_ended(ended: ExecResult, timeout_s: float) -> Ended:
    return Ended(
        exit_code=ended.exit_code,
        stdout=ended.stdout,
        stderr=ended.stderr,
        timed_out=ended.timed_out,
        truncated=ended.stdout_truncated or ended.stderr_truncated,
        timeout_s=timeout_s,
    )
