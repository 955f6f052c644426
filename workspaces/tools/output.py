"""Makes a ToolResult of what a tool has to say: names it, and moves what is long to a file of the workspace.

Nothing is cut in silence: a long text keeps its head and tail, and says where the whole lies.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from workspaces.domain.classify import named
from workspaces.domain.results import ResultClass
from workspaces.domain.text import clean_json, clean_text
from workspaces.sandboxes.base import (
    SandboxError,
    SandboxGone,
    SandboxUnavailable,
)
from workspaces.tools.base import ToolContext, ToolResult

OUTPUTS_FOLDER = ".agentdesk/outputs"
NAMED_CHARS = 200  # left for the line that names the class, and the line ends
HEAD_SHARE = 0.6  # of what is shown; errors stand mostly at the end, what they are about at the start


def result(
    context: ToolContext,
    body: str,
    result_class: ResultClass = ResultClass.OK,
    why: str = "",
    data: Mapping[str, Any] | None = None,
    *,
    may_write: bool = True,
) -> ToolResult:
    """`body` after the line that names its class; offloaded when it is longer than the context's limit.

    `may_write` is false for a tool that only reads: a file of its own would change a disk that counts as
    unchanged. Its middle is then left out, and the result is named truncated.
    """
    body, extra = clean_text(body), dict(data or {})
    if len(body) > context.output_limit_chars:
        extra["output_sha256"] = hashlib.sha256(body.encode()).hexdigest()  # equal outputs, whatever the file
        shown, path = _offload(context, body) if may_write else (_without_middle(context, body), "")
        if path:
            extra["offloaded_path"] = path
        elif result_class is ResultClass.OK:
            result_class, why = ResultClass.TRUNCATED, "the middle of the output was not kept"
        body = shown
    content = "\n".join(part for part in (named(result_class, why), body) if part)
    return ToolResult(content, result_class, clean_json(extra))


def failure(message: str, evidence: str = "", data: Mapping[str, Any] | None = None) -> ToolResult:
    """An error with its evidence, which must be short."""
    line = named(ResultClass.ERROR, clean_text(message))
    content = f"{line}\n{clean_text(evidence)}" if evidence else line
    return ToolResult(content, ResultClass.ERROR, clean_json(dict(data or {})))


def refused(error: SandboxError) -> ToolResult:
    """What the sandbox would not do, as the tool's error. What only the engine can handle goes on up."""
    if isinstance(error, SandboxUnavailable | SandboxGone):
        raise error
    return failure(str(error), error.hint)


def fitting(lines: Sequence[str], room: int) -> list[str]:
    """As many of the first lines as fit into `room` characters."""
    shown = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return shown


def head_and_tail(text: str, limit: int, pointer: str) -> str:
    """The beginning and the end of `text` in about `limit` characters, cut at line ends where near."""
    room = max(200, limit - len(pointer) - NAMED_CHARS)
    head, tail = text[: int(room * HEAD_SHARE)], text[-(room - int(room * HEAD_SHARE)) :]
    head_end = head.rfind("\n") + 1
    if head_end > len(head) // 2:
        head = head[:head_end]
    tail_start = tail.find("\n") + 1
    if 0 < tail_start < len(tail) // 2:
        tail = tail[tail_start:]
    return f"{head.rstrip()}\n{pointer}\n{tail}"


def _offload(context: ToolContext, body: str) -> tuple[str, str]:
    """What is shown instead of `body`, and the path of the whole (empty when it could not be saved)."""
    path = f"{OUTPUTS_FOLDER}/{file_name(context.key)}.txt"
    raw = body.encode()
    size = _size(body)
    try:
        context.sandbox.write(path, raw)
    except (SandboxUnavailable, SandboxGone):
        raise
    except SandboxError as error:
        pointer = f"[… the middle of this output ({size}) is lost: it could not be saved: {error} …]"
        return head_and_tail(body, context.output_limit_chars, pointer), ""
    pointer = f"[… full output, {size}: {path}, read with read_file …]"
    return head_and_tail(body, context.output_limit_chars, pointer), path


def _without_middle(context: ToolContext, body: str) -> str:
    pointer = f"[… the middle of this output ({_size(body)}) is left out: ask for less at once …]"
    return head_and_tail(body, context.output_limit_chars, pointer)


def _size(body: str) -> str:
    return f"{body.count(chr(10)) + 1} lines, {len(body.encode())} bytes"


def file_name(key: str) -> str:
    """A call's key as a file name: itself, or its hash when it could be more than a name."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", key):
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
