"""Which checkpoints of a task stay restorable: the first, the newest, and ever sparser ones between. Pure.

Counted by position (1, 2, 3 … over all branches of a task), which never changes. So what is dropped once is never
wanted again: the spacing only doubles, and a multiple of the wider one is a multiple of the narrower.
"""

from __future__ import annotations

from collections.abc import Iterable

CEILING = 100  # of those that are kept for their spacing; at more, the spacing doubles
LAST, EVERY = 50, 10  # what a profile says unless it says otherwise


def spacing(count: int, every: int, ceiling: int = CEILING) -> int:
    """The distance between kept checkpoints when there are `count`; 0 keeps none for its position."""
    if every < 1:
        return 0
    while count // every > ceiling:
        every *= 2
    return every


def kept(positions: Iterable[int], *, count: int, last: int, every: int, ceiling: int = CEILING) -> set[int]:
    """Those of `positions` that stay, when the task has `count` checkpoints.

    At most 1 + `last` + `ceiling`, however large `count` grows. The newest always stays.
    """
    distance = spacing(count, every, ceiling)
    newest_from = count - max(1, last)
    return {
        position
        for position in positions
        if position == 1 or position > newest_from or (distance and position % distance == 0)
    }
