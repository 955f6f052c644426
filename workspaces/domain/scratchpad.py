"""The scratchpad's sections, how entries stand in them, and the bounded head that every request carries. Pure.

An entry begins with "- "; its further lines are indented. What people or older versions wrote without that is read
line by line. Nothing is left out of the head in silence: it says how much more there is and how it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

SECTIONS = ("plan", "attempts", "contradictions", "exit_condition", "notes")
GROWING = frozenset({"attempts", "contradictions", "notes"})  # a new entry does not undo the old ones
MAX_SECTION_CHARS = 20_000
HEAD_CHARS = 8_000  # of a pinned text that is sent with every request: about 2,200 tokens

# In the order in which they get room: what each may have before the others have had theirs, in characters.
# The exit condition decides when the work is over; an attempt that is forgotten is made again.
_SHARES = {"exit_condition": 2_500, "plan": 1_800, "attempts": 1_800, "contradictions": 700, "notes": 700}
_OTHER_SHARE = 300
_ORDER = ("exit_condition", "plan", "attempts", "contradictions", "notes")
_ROOM_FOR_WORDS = 160  # of a line that tells what is not shown
_LEAST_SHOWN = 250


class Author(StrEnum):
    AGENT = "agent"
    OPERATOR = "operator"


class Outcome(StrEnum):
    WORKED = "worked"
    FAILED = "failed"
    UNCLEAR = "unclear"


def attempt_entry(attempt: str, outcome: Outcome, why: str) -> str:
    """ "- failed: pip install lxml" and, below it, why."""
    entry = f"- {outcome.value}: {_indented(attempt)}"
    return f"{entry}\n  why: {_indented(why)}" if why.strip() else entry


def contradiction_entry(claim: str, against: str, seen: str) -> str:
    """Two claims that cannot both hold, and where each was seen."""
    entry = f"- one says: {_indented(claim)}\n  another says: {_indented(against)}"
    return f"{entry}\n  seen in: {_indented(seen)}" if seen.strip() else entry


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n    ")


def entries(text: str) -> list[str]:
    """A section's entries, oldest first."""
    found: list[str] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        if found and line.startswith(" "):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def added(before: str, entry: str) -> str:
    """The section with one more entry; the same when it ends with that entry already (a call that is run again)."""
    if not before or before == entry or before.endswith(f"\n{entry}"):
        return before or entry
    return f"{before}\n{entry}"


def in_order(pad: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is noted, the most decisive section first."""
    order = [name for name in _ORDER if name in pad] + sorted(name for name in pad if name not in _ORDER)
    return [(name, pad[name]) for name in order]


def head(pad: Mapping[str, str], limit: int = HEAD_CHARS) -> str:
    """What of the scratchpad is sent with every request: at most `limit` characters, empty when nothing is noted."""
    texts = {name: text.strip() for name, text in in_order(pad) if text.strip()}
    order = list(texts)
    room = limit - _ROOM_FOR_WORDS
    waiting = [_share(name, texts[name]) for name in order]
    shown: list[str] = []
    left: list[str] = []
    for place, name in enumerate(order):
        mine = min(room, max(waiting[place], room - sum(waiting[place + 1 :]))) - len(name) - 6
        if len(texts[name]) > mine < _LEAST_SHOWN:  # only with a great many sections of a person's own
            left.append(name)
            continue
        shown.append(f"## {name}\n{_part(name, texts[name], mine)}")
        room -= len(shown[-1]) + 2
    if left:
        shown.append(f"({len(left)} more sections: {_how(left[0][:40])})")
    return "\n\n".join(shown)


def _share(name: str, text: str) -> int:
    """What a section is sure of, its title with it; never more than it needs."""
    return min(len(text), _SHARES.get(name, _OTHER_SHARE)) + len(name) + 6


def _part(name: str, text: str, room: int) -> str:
    """A section within `room` characters: of what grows the newest entries, of the rest the beginning."""
    if len(text) <= room:
        return text
    room = max(0, room - _ROOM_FOR_WORDS)
    if name in GROWING:
        return _newest(name, entries(text), room)
    cut = text[:room]
    line = cut.rfind("\n")
    if line > room // 2:
        cut = cut[:line]
    return f"{cut}\n(… {len(text) - len(cut):,} more characters: {_how(name)})"


def _newest(name: str, found: list[str], room: int) -> str:
    kept: list[str] = []
    for entry in reversed(found):
        if len(entry) + 1 > room:
            break
        kept.append(entry)
        room -= len(entry) + 1
    older = len(found) - len(kept)
    if not kept:  # one entry that is longer than the room
        kept, older = [f"{found[-1][:room]} …"], older - 1
        words = f"(the newest of {len(found)} is cut: {_how(name)})"
    else:
        words = f"(… {older} older {'entry' if older == 1 else 'entries'}: {_how(name)})"
    return "\n".join([words, *reversed(kept)])


def _how(name: str) -> str:
    return f'read it whole with note(section="{name}", read=true)'
