"""read_file, write_file, list_files: a workspace's files, by the sandbox's own door, never by the host's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.text import binary_note, clean_text, clip, decode_output
from workspaces.sandboxes.base import Entry, FileTooLarge, NotAFile, Sandbox, SandboxError
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import failure, fitting, refused, result
from workspaces.tools.paths import relative

MAX_READ_BYTES = 50 * 1024 * 1024
MAX_WRITTEN_BYTES = 10 * 1024 * 1024
MAX_DIFFED_BYTES = 2 * 1024 * 1024
DIFF_CHARS = 100_000  # kept for the desk
MAX_ENTRIES = 2_000
# folders of other programs: named in a listing, entered only when asked for by path
NOT_ENTERED = frozenset({".git", ".agentdesk", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})

PATH = {"type": "string", "description": "Relative to the workspace folder."}


class ReadFile:
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file of the workspace. offset is the first line (1, 2, …), limit the number of "
            "lines. A long file comes in parts; the result says where to go on."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": PATH,
                "offset": {"type": "integer", "minimum": 1},
                "limit": {"type": "integer", "minimum": 1},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
        effect=Effect.NONE,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            path = relative(str(arguments["path"]))
            raw = context.sandbox.read(path, limit_bytes=MAX_READ_BYTES)
        except FileTooLarge as error:
            return failure(str(error), "Look at a part of it with shell (head, tail, grep).")
        except SandboxError as error:
            return _with_neighbours(context.sandbox, str(arguments["path"]), error)
        text = decode_output(raw)
        if text == binary_note(raw):
            told = "Look at it with shell (file, od, a program that reads its format)."
            return failure(f"{path} is not text: {len(raw)} bytes, begins {raw[:16].hex(' ')}", told)
        if not raw:
            return result(context, "", ResultClass.EMPTY, f"{path} is there and has no content", {"lines": 0})
        return _lines_of(context, path, text, arguments, "�" in text and not _is_utf8(raw))


def _lines_of(context: ToolContext, path: str, text: str, arguments: Mapping[str, Any], damaged: bool) -> ToolResult:
    """The lines asked for, as many as the context takes. The file is the whole: nothing is offloaded."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = int(arguments.get("offset") or 1)
    if first > len(lines):
        return failure(f"{path} has {len(lines)} lines, there is no line {first}")
    asked = lines[first - 1 : first - 1 + int(arguments.get("limit") or len(lines))]
    shown = fitting(asked, max(200, context.output_limit_chars - 300))
    notes = []
    if not shown:  # one line that alone is too long
        line = lines[first - 1]
        shown = [line[: max(200, context.output_limit_chars - 300)]]
        notes.append(f"line {first} has {len(line)} characters, shown are the first {len(shown[0])}")
    last = first + len(shown) - 1
    if first > 1 or last < len(lines):
        on = f"; go on with offset={last + 1}" if last < len(lines) else ""
        notes.append(f"lines {first} to {last} of {len(lines)}{on}")
    if damaged:
        notes.append("not UTF-8: � stands for bytes that cannot be shown, so do not write this text back")
    data = {"path": path, "first_line": first, "last_line": last, "lines": len(lines)}
    return ToolResult("\n".join([f"[{note}]" for note in notes] + shown), data=data)


class WriteFile:
    spec = ToolSpec(
        name="write_file",
        description=(
            "Write a whole text file, making its folders; what was in it before is gone. To change a part of "
            "a file use edit_file."
        ),
        parameters={
            "type": "object",
            "properties": {"path": PATH, "content": {"type": "string"}},
            "required": ["path", "content"],
            "additionalProperties": False,
        },
        effect=Effect.WORKSPACE,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        content = str(arguments["content"])
        try:
            raw = content.encode()
        except UnicodeEncodeError:
            return failure("the content holds half of a surrogate pair, which no file can hold; nothing written")
        if len(raw) > MAX_WRITTEN_BYTES:
            return failure(f"the content has {len(raw)} bytes, at most {MAX_WRITTEN_BYTES}; nothing was written")
        try:
            path = relative(str(arguments["path"]))
            before = text_before(context.sandbox, path)
            context.sandbox.write(path, raw)
        except SandboxError as error:
            return refused(error)
        lines = content.count("\n") + (1 if content and not content.endswith("\n") else 0)
        data: dict[str, Any] = {"path": path, "bytes": len(raw), "lines": lines, "created": before is None}
        if before is not None and isinstance(before, str):
            data["diff"] = clip(unified_diff(before, clean_text(content), path), DIFF_CHARS)
            if before == content:
                return ToolResult(f"{path} already had exactly this content ({len(raw)} bytes).", data=data)
        done = "Created" if before is None else "Overwrote"
        return ToolResult(f"{done} {path}: {lines} lines, {len(raw)} bytes.", data=data)


class ListFiles:
    spec = ToolSpec(
        name="list_files",
        description=(
            "List a folder of the workspace (the workspace itself when path is left out), with sizes in "
            "bytes. recursive=true lists what is below, too, except in folders such as .git and node_modules."
        ),
        parameters={
            "type": "object",
            "properties": {"path": PATH, "recursive": {"type": "boolean"}},
            "additionalProperties": False,
        },
        effect=Effect.NONE,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        asked = str(arguments.get("path") or "")
        try:
            path = relative(asked)
            recursive = bool(arguments.get("recursive"))
            entries, more = listing(context.sandbox, path, recursive=recursive, limit=MAX_ENTRIES)
        except SandboxError as error:
            return _with_neighbours(context.sandbox, asked, error)
        if not entries:
            return result(context, "", ResultClass.EMPTY, f"the folder {path or '/workspace'} has no files")
        shown = fitting([_line(entry) for entry in entries], context.output_limit_chars - 300)
        more = more or len(shown) < len(entries)
        data = {"path": path, "entries": len(shown), "more": more}
        if more:
            why = f"there are more than these {len(shown)} entries: list a folder further down"
            return result(context, "\n".join(shown), ResultClass.TRUNCATED, why, data, may_write=False)
        return result(context, "\n".join(shown), data=data, may_write=False)


def listing(sandbox: Sandbox, path: str, *, recursive: bool, limit: int) -> tuple[list[Entry], bool]:
    """Entries in path order, and whether there were more. Raises SandboxError."""
    found = sandbox.list(path, limit=limit + 1)
    if not recursive:
        return found[:limit], len(found) > limit
    entries: list[Entry] = []
    waiting = list(reversed(found))
    while waiting:
        entry = waiting.pop()
        if len(entries) == limit:
            return entries, True
        entries.append(entry)
        if entry.kind == "folder" and entry.path.rpartition("/")[2] not in NOT_ENTERED:
            try:
                waiting += reversed(sandbox.list(entry.path, limit=limit + 1))
            except NotAFile:
                continue  # gone, or closed to us, since it was listed
    return entries, False


def text_before(sandbox: Sandbox, path: str) -> str | bool | None:
    """A file's text; None when there is no such file; True when there is one that is no text or very long."""
    try:
        raw = sandbox.read(path, limit_bytes=MAX_DIFFED_BYTES)
    except NotAFile:
        return None
    except FileTooLarge:
        return True
    try:
        return raw.decode() if b"\x00" not in raw else True
    except UnicodeDecodeError:
        return True


def _line(entry: Entry) -> str:
    name = clean_text(entry.path)
    match entry.kind:
        case "folder":
            closed = "  (not entered)" if entry.path.rpartition("/")[2] in NOT_ENTERED else ""
            return f"{name}/{closed}"
        case "file":
            return f"{name}  {entry.size_bytes}{'  executable' if entry.mode & 0o111 else ''}"
        case other:
            return f"{name}  ({other})"


def _with_neighbours(sandbox: Sandbox, asked: str, error: SandboxError) -> ToolResult:
    """A file that is not there, with the nearest that are."""
    if not isinstance(error, NotAFile):
        return refused(error)
    try:
        around, _ = listing(sandbox, "", recursive=True, limit=MAX_ENTRIES)
        path = relative(asked)
    except SandboxError:
        return refused(error)
    name = path.rpartition("/")[2]
    same = [entry.path for entry in around if entry.path.rpartition("/")[2] == name and entry.path != path]
    near = same or difflib.get_close_matches(path, [entry.path for entry in around], n=3, cutoff=0.6)
    told = f"Nearest: {', '.join(near[:3])}" if near else "list_files shows what is there."
    return failure(str(error), told)


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
