"""What differs between two things that a model saw: parts that came, went, or are sent otherwise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workspaces.domain.context import SegmentKind


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a request. `key` names the same message, tool or text in any request."""

    key: str
    place: int  # in the order in which it was sent, from 0
    label: str
    kind: SegmentKind
    text: str
    tokens: int
    replaced: bool = False  # something shorter is sent in its place


@dataclass(frozen=True, slots=True)
class Changed:
    before: Part
    after: Part

    @property
    def words(self) -> str:
        if self.after.replaced and not self.before.replaced:
            return "sent shorter"
        if self.before.replaced and not self.after.replaced:
            return "sent whole again"
        return "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """In the order in which the parts were sent. `kept` parts are the same, to the last character."""

    added: list[Part] = field(default_factory=list)
    removed: list[Part] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)
    kept: int = 0

    @property
    def tokens(self) -> int:
        """How many tokens (estimated) the later request has more."""
        grown = sum(change.after.tokens - change.before.tokens for change in self.changed)
        return sum(part.tokens for part in self.added) - sum(part.tokens for part in self.removed) + grown


def difference(before: Sequence[Part], after: Sequence[Part]) -> Difference:
    """From one request to another, of one line of history or of two."""
    old, new = {part.key: part for part in before}, {part.key: part for part in after}
    both = [(old[part.key], part) for part in after if part.key in old]
    changed = [Changed(was, now) for was, now in both if was.text != now.text]
    return Difference(
        added=[part for part in after if part.key not in old],
        removed=[part for part in before if part.key not in new],
        changed=changed,
        kept=len(both) - len(changed),
    )
