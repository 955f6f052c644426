"""edit_file: replace an exact text, or say with evidence why not. Never guesses which place was meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from workspaces.domain.diffs import unified_diff
from workspaces.domain.effects import Effect
from workspaces.domain.text import binary_note, clip, decode_output
from workspaces.sandboxes.base import FileTooLarge, SandboxError
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.files import DIFF_CHARS, PATH
from workspaces.tools.output import failure, refused, result
from workspaces.tools.paths import relative

MAX_EDITED_BYTES = 10 * 1024 * 1024
MAX_COMPARED_LINES = 20_000
EVIDENCE_LINES = 12
SHOWN_PLACES = 3
LIKE = 0.5  # of 1: below, a line is not worth showing
LINE_CHARS = 300


class EditFile:
    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace an exact text in a file. old must be in the file exactly as given, spaces and line ends "
            "included, and exactly count times (once when left out): give enough lines around to make it "
            "unique. The result is the diff."
        ),
        parameters={
            "type": "object",
            "properties": {
                "path": PATH,
                "old": {"type": "string", "minLength": 1},
                "new": {"type": "string"},
                "count": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "How often old is expected, all are replaced.",
                },
            },
            "required": ["path", "old", "new"],
            "additionalProperties": False,
        },
        effect=Effect.WORKSPACE,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        old, new = str(arguments["old"]), str(arguments["new"])
        expected = int(arguments.get("count") or 1)
        if not old:
            return failure("old is empty: write a new file with write_file")
        if old == new:
            return failure("old and new are the same: nothing to change")
        try:
            old_raw, new_raw = old.encode(), new.encode()
        except UnicodeEncodeError:
            return failure("old or new holds half of a surrogate pair, which no file can hold")
        try:
            path = relative(str(arguments["path"]))
            raw = context.sandbox.read(path, limit_bytes=MAX_EDITED_BYTES)
        except FileTooLarge as error:
            return failure(str(error), "Change it with shell (sed, a script).")
        except SandboxError as error:
            return refused(error)
        if decode_output(raw) == binary_note(raw):
            return failure(f"{path} is not text ({len(raw)} bytes): change it with shell")
        if old_raw not in raw and b"\r\n" in raw and b"\r" not in old_raw:
            old_raw, new_raw = (part.replace(b"\n", b"\r\n") for part in (old_raw, new_raw))
        places = _lines_with(raw, old_raw)
        if len(places) != expected:
            return _wrong_count(path, raw, old, places, expected)
        after = raw.replace(old_raw, new_raw)
        try:
            context.sandbox.write(path, after)
        except SandboxError as error:
            return refused(error)
        diff = unified_diff(_text(raw), _text(after), path)
        data = {"path": path, "replaced": expected, "lines": places[:100], "diff": clip(diff, DIFF_CHARS)}
        return result(context, f"Replaced {expected} in {path}.\n{diff}", data=data)


def _wrong_count(path: str, raw: bytes, old: str, places: list[int], expected: int) -> ToolResult:
    data = {"path": path, "matches": len(places), "lines": places[:100]}
    if places:
        at = ", ".join(str(line) for line in places[:20]) + (", …" if len(places) > 20 else "")
        told = f"Give more of the text around the one that is meant, or count={len(places)} to replace all."
        message = f"old is in {path} {len(places)} times, not {expected} (lines {at}); nothing was changed"
        return failure(message, told, data)
    near, evidence = nearest_lines(_text(raw), old)
    return failure(f"old is not in {path}; nothing was changed", evidence, {**data, "nearest_lines": near})


def nearest_lines(text: str, old: str) -> tuple[list[int], str]:
    """Where `text` is most like `old`: line numbers, and those lines as evidence."""
    lines = [line.rstrip("\r")[:LINE_CHARS] for line in text.split("\n")[:MAX_COMPARED_LINES]]
    wanted = [line[:LINE_CHARS] for line in old.strip("\n").split("\n")]
    bare = [" ".join(line.split()) for line in lines]
    bare_wanted = [" ".join(line.split()) for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if bare[start : start + len(wanted)] == bare_wanted:
            shown = _numbered(lines, start, min(len(wanted), EVIDENCE_LINES))
            return [start + 1], f"It differs only in spaces or indentation; the file has:\n{shown}"
    key = max(range(len(wanted)), key=lambda index: len(bare_wanted[index]))  # the line that says most
    likeness = difflib.SequenceMatcher(None, b=bare_wanted[key], autojunk=False)
    best: list[tuple[float, int]] = []
    for index, line in enumerate(bare):
        # the quick ratios are upper bounds: only a line that can be among the best three is really compared
        floor = best[-1][0] if len(best) == SHOWN_PLACES else LIKE
        likeness.set_seq1(line)
        if likeness.real_quick_ratio() > floor and likeness.quick_ratio() > floor:
            ratio = likeness.ratio()
            if ratio > floor:
                best = sorted([*best, (ratio, index)], key=lambda pair: (-pair[0], pair[1]))[:SHOWN_PLACES]
    if not best:
        return [], "No line is like it. Read the file again: it may have changed, or it is another file."
    start = max(0, best[0][1] - key)
    shown = _numbered(lines, start, min(len(wanted), EVIDENCE_LINES))
    others = [_numbered(lines, index, 1) for _, index in best[1:]]
    return [index + 1 for _, index in best], "\n".join(["Nearest in the file:", shown, *others])


def _lines_with(raw: bytes, part: bytes) -> list[int]:
    """The line (1, 2, …) at which each match begins, without overlaps, as `replace` counts them."""
    found: list[int] = []
    line, position = 1, 0
    start = raw.find(part)
    while start >= 0:
        line += raw.count(b"\n", position, start)
        found.append(line)
        position = start
        start = raw.find(part, start + len(part))
    return found


def _numbered(lines: list[str], start: int, count: int) -> str:
    return "\n".join(f"{start + i + 1}: {line}" for i, line in enumerate(lines[start : start + count]))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
