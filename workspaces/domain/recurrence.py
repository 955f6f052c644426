"""Does the same trouble come back, whatever is changed? A verdict over the versions of one profile. Pure.

Counted is, per version, the share of its tasks in which the cause was seen at least once. A task that met it ten
times counts once: a task's incidents are not independent of one another, tasks are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from workspaces.domain.proportions import fisher, wilson

ALPHA = 0.05  # shared by the changes that are judged together (Bonferroni)
STRUCTURAL_FROM = 2  # changes after which it came back as before


class Outcome(StrEnum):
    STRUCTURAL = "structural"  # changed, and changed again: it came back at the same rate
    SAME = "same"  # one change could be judged, and did not help
    FELL = "fell"
    ROSE = "rose"
    UNCHANGED = "unchanged"  # one version only: nothing to compare
    TOO_FEW = "too_few"


@dataclass(frozen=True, slots=True)
class VersionRate:
    """One version: `hit` of its `tasks` met the cause, in `incidents` incidents over `steps` steps.

    `changed`: what differs from the version before ("prompt", "limits", …), in words.
    """

    number: int
    tasks: int
    hit: int
    incidents: int = 0
    steps: int = 0
    changed: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        return self.hit / self.tasks if self.tasks else 0.0

    @property
    def per_100_steps(self) -> float | None:
        return round(100 * self.incidents / self.steps, 1) if self.steps else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hit, self.tasks)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`words` is the whole verdict. `at`: the version that made the difference. `p`: of the test that decided."""

    outcome: Outcome
    words: str
    at: int | None = None
    p: float | None = None
    judged: int = 0  # changes that had tasks enough on both sides


@dataclass(frozen=True, slots=True)
class _Split:
    """All tasks before a change, and all from it on."""

    version: VersionRate
    hit_before: int
    before: int
    hit_after: int
    after: int

    @property
    def p(self) -> float:
        return fisher(self.hit_before, self.before, self.hit_after, self.after)

    def could_tell(self, alpha: float) -> bool:
        """Whether it would have shown, had the change ended the trouble for good."""
        return fisher(self.hit_before, self.before, 0, self.after) < alpha

    @property
    def fell(self) -> bool:
        return self.hit_after * self.before < self.hit_before * self.after

    @property
    def counts(self) -> str:
        return f"{self.hit_before} of {self.before} → {self.hit_after} of {self.after} tasks"


def judge(versions: Sequence[VersionRate]) -> Verdict:
    """The verdict over versions in their order; those without a task say nothing and are passed over.

    Rule: each change parts the tasks into those before and those from it on. If Fisher's exact test tells the two
    shares apart (two-sided, 0.05 divided by the number of changes), the clearest change made the difference. Else a
    change has been judged if it could have been told: had no task met the cause after it, the same test would have
    shown that. Two judged changes without a difference are structural; one is not enough to say so.
    """
    ran = _with_tasks(versions)
    total = sum(version.tasks for version in ran)
    if not any(version.hit for version in ran):
        return Verdict(Outcome.UNCHANGED, f"not seen in {_n(total)}")
    if len(ran) < 2:
        return Verdict(Outcome.UNCHANGED, f"one version only ({_n(total)}): no change to compare")
    splits = [_split(ran, at) for at in range(1, len(ran))]
    alpha = ALPHA / len(splits)
    clearest = min(splits, key=lambda split: split.p)
    if clearest.p < alpha:
        outcome = Outcome.FELL if clearest.fell else Outcome.ROSE
        words = (
            f"{outcome.value} after the change of {_parts(clearest.version)} in v{clearest.version.number}: "
            f"{clearest.counts} ({_p(clearest.p)})"
        )
        return Verdict(outcome, words, clearest.version.number, clearest.p, len(splits))
    judged = [split for split in splits if split.could_tell(alpha)]
    if not judged:
        counts = ", ".join(f"v{version.number}: {version.hit} of {version.tasks}" for version in ran)
        return Verdict(Outcome.TOO_FEW, f"too few tasks to tell ({_n(total)}; {counts})", None, clearest.p)
    changes = _changes([split.version for split in judged])
    if len(judged) >= STRUCTURAL_FROM:
        return Verdict(Outcome.STRUCTURAL, f"{changes}, same rate: structural", None, clearest.p, len(judged))
    words = f"{changes}, same rate ({judged[0].counts}): one change is not enough to call it structural"
    return Verdict(Outcome.SAME, words, None, clearest.p, 1)


def _with_tasks(versions: Sequence[VersionRate]) -> list[VersionRate]:
    """Only those that ran; what a version without a task changed is counted to the next one that has some."""
    found: list[VersionRate] = []
    carried: tuple[str, ...] = ()
    for version in versions:
        changed = tuple(dict.fromkeys((*carried, *version.changed)))
        if not version.tasks:
            carried = changed
            continue
        found.append(VersionRate(version.number, version.tasks, version.hit, version.incidents, version.steps, changed))
        carried = ()
    return found


def _split(versions: Sequence[VersionRate], at: int) -> _Split:
    before, after = versions[:at], versions[at:]
    return _Split(
        versions[at],
        sum(version.hit for version in before),
        sum(version.tasks for version in before),
        sum(version.hit for version in after),
        sum(version.tasks for version in after),
    )


_NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}


def _changes(versions: Sequence[VersionRate]) -> str:
    """ "three prompt changes", or "two changes (prompt; model and limits)" where they differ."""
    count = len(versions)
    number = _NUMBERS.get(count, str(count))
    plural = "" if count == 1 else "s"
    parts = [_parts(version) for version in versions]
    if all(one == other for one, other in pairwise(parts)):
        return f"{number} {parts[0]} change{plural}"
    return f"{number} change{plural} ({'; '.join(parts)})"


def _parts(version: VersionRate) -> str:
    named = version.changed or ("nothing that a version holds",)
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _n(tasks: int) -> str:
    return f"n = {tasks:,} task{'' if tasks == 1 else 's'}"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
