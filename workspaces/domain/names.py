"""The real tool names nearest to one that does not exist. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

# What models call these tools out of habit from other runtimes. Only a suggestion, never an alias that runs.
_HABITS = """
shell: bash sh exec execute run command terminal python runcommand executecommand runshell runpython
shell: console
read_file: cat open view read readfile openfile getfile viewfile loadfile
write_file: write create save createfile savefile touch newfile putfile filewrite
edit_file: edit strreplace strreplacebasededittool replace patch applypatch modify updatefile
list_files: ls dir list listdir listdirectory tree readdir glob listfolder
search_files: grep find rg search ripgrep searchcode findinfiles codesearch
note: think memory remember scratchpad todo plan writenote todowrite
ask_operator: ask askuser askhuman question clarify help requestinput
finish: done submit end complete answer finalanswer stop exit attemptcompletion taskcomplete
"""

HABITS: dict[str, set[str]] = {}
for _line in _HABITS.strip().splitlines():
    _tool, _, _words_of = _line.partition(":")
    HABITS.setdefault(_tool, set()).update(_words_of.split())


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """At most `limit` of `known`, the likeliest first: spelling, habit, likeness, shared words."""
    names = sorted(set(known))
    wanted = _bare(name)
    if not wanted:
        return []
    found = [candidate for candidate in names if _bare(candidate) == wanted]
    found += [candidate for candidate in names if wanted in HABITS.get(candidate, ())]
    by_bare = {_bare(candidate): candidate for candidate in names}
    found += [by_bare[bare] for bare in difflib.get_close_matches(wanted, by_bare, n=limit, cutoff=0.7)]
    words = _words(name)
    shared = [(len(words & _words(candidate)), candidate) for candidate in names]
    found += [candidate for count, candidate in sorted(shared, key=lambda pair: -pair[0]) if count]
    return list(dict.fromkeys(found))[:limit]


def _bare(name: str) -> str:
    """Letters and digits only, one case: read_file, ReadFile and functions.read-file are one."""
    last = re.split(r"[.:/]", name[:200])[-1]
    return re.sub(r"[\W_]+", "", last).casefold()


def _words(name: str) -> set[str]:
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name[:200])
    return {part.casefold().removesuffix("s") for part in parts if len(part) > 2}
