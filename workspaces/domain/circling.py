"""Finds circling: no regular cycle, yet nearly every call was made before, and brought nothing new. Pure."""

from __future__ import annotations

from collections import Counter

from workspaces.domain.found import finding, of_look, steps
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.loops import is_poll, rounds_of, streaks
from workspaces.domain.seen import Seen, said, shown
from workspaces.domain.thresholds import Thresholds


def circling(view: Seen, limits: Thresholds) -> list[Finding]:
    """No regular cycle, but nearly every call was made before with the same result, and nothing was changed anew."""
    size = limits.circling
    acts = [look for look in view.looks if not look.note and not look.only_waits]
    if not size or len(acts) <= size or acts[-1].turn != len(view.turns) - 1:
        return []
    known: Counter[tuple[str, str]] = Counter()
    again = []
    for look in acts:
        again.append(known[look.sight] > 0)
        known[look.sight] += 1
    recent = list(zip(acts, again, strict=True))[-size:]
    if not again[-1] or sum(is_again for _, is_again in recent) < 0.8 * size:
        return []
    if any(look.changes and not look.failed and not is_again for look, is_again in recent):
        return []
    sights = [look.sight for look in acts]
    if limits.cycle and any(rounds_of(sights, period) >= 2 for period in (4, 5, 6)):
        return []  # a cycle, in its second round
    since = recent[0][0].turn
    if any(look.waits or look.not_yet for look in view.looks if look.turn >= since):
        return []
    if any(is_poll(view, streak) for streak in streaks(view)):
        return []
    looks = [look for look, is_again in recent if is_again]
    most, _ = Counter(look.same for look in looks).most_common(1)[0]
    example = next(look for look in reversed(looks) if look.same == most)
    total = sum(again)
    return [
        finding(
            IncidentKind.LOOP,
            "circling",
            [of_look(look) for look in looks],
            f"{len(looks)} of the last {size} calls were made before, with the same results, at "
            f"{steps([look.call.step for look in looks])}; most often {shown(example.call)}: {said(example)}",
            about="+".join(sorted({look.call.name for look in looks})),
            subject="circling",
            count=total,
            threshold=size,
        )
    ]


RULES = (circling,)
