"""The difference between two texts as a unified diff, in bounded time. Pure."""

from __future__ import annotations

import difflib

CONTEXT_LINES = 3
MAX_COMPARED_LINES = 3_000  # difflib is quadratic at worst: past this, the changed stretch is shown whole


def unified_diff(before: str, after: str, path: str) -> str:
    """`diff -u` of one file, empty when nothing changed. What is equal at both ends is never compared."""
    old, new = _lines(before), _lines(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head == len(old) == len(new):
        return ""
    start = max(0, head - CONTEXT_LINES)
    keep = max(0, tail - CONTEXT_LINES)
    old, new = old[start : len(old) - keep], new[start : len(new) - keep]
    lines = [f"--- a/{path}\n", f"+++ b/{path}\n"]
    if len(old) + len(new) > MAX_COMPARED_LINES:
        lines.append(f"@@ -{_range(start, len(old))} +{_range(start, len(new))} @@\n")
        lines += [f"-{line}" for line in old] + [f"+{line}" for line in new]
    else:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
            first, last = group[0], group[-1]
            old_range = _range(start + first[1], last[2] - first[1])
            new_range = _range(start + first[3], last[4] - first[3])
            lines.append(f"@@ -{old_range} +{new_range} @@\n")
            for tag, i1, i2, j1, j2 in group:
                if tag == "equal":
                    lines += [f" {line}" for line in old[i1:i2]]
                    continue
                lines += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    ended = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(ended)


def _lines(text: str) -> list[str]:
    """Lines as a file has them: cut at line feeds only, not at form feeds or Unicode's separators."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])


def _range(start: int, length: int) -> str:
    """A hunk's range as POSIX has it: one line is its number alone, no line is the number before it."""
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
