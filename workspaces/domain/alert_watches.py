"""What is wrong now, of what is watched: readings in, troubles out, and what changed since the last look. Pure.

A trouble is a `Happening` of the edge `began` with what it may concern (`Trouble`). Whether a rule sees it, and what of
it is new, graver or over, is decided per rule, so that one reading serves all rules.

Nothing counts from before `since_s`, from when on somebody has looked without a gap: an installation that was away,
or was restored, begins anew and does not cry wolf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from workspaces.domain.alerts import AlertKind, Edge, Happening, RuleScope
from workspaces.domain.incidents import Severity

MOST_AT_ONCE = 5_000  # troubles that begin in one look; the next takes the rest


@dataclass(frozen=True, slots=True)
class Whom:
    """Whose work it is about. `profile`: None for what no profile's agent used."""

    workspace: int
    user: int
    profile: int | None


@dataclass(frozen=True, slots=True)
class Trouble:
    """`whom`: None is the site's own, which only a site's rule sees."""

    happening: Happening
    whom: frozenset[Whom] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """How a rule looks at troubles. `workspaces`: None is all; otherwise those that `owner` is a member of.

    `owner`: None where the rule is the site's, or of its staff.
    """

    scope: RuleScope = RuleScope.SITE
    scope_id: int | None = None
    workspaces: frozenset[int] | None = None
    owner: int | None = None

    @property
    def whole(self) -> bool:
        return self.workspaces is None and self.scope is RuleScope.SITE

    def of(self, trouble: Trouble) -> Happening | None:
        """The trouble as the rule's: what is of many (a pool) says that it is in the rule's scope. None: it is not.

        Of what somebody spends only staff and that person know.
        """
        happening = trouble.happening
        if happening.kind is AlertKind.SPEND_RATE and self.owner is not None and happening.user != self.owner:
            return None
        if self.whole:
            return happening
        theirs = [each for each in trouble.whom or () if self.sees(each)]
        if not theirs:
            return None
        match self.scope:
            case RuleScope.USER:
                return replace(happening, user=self.scope_id)
            case RuleScope.WORKSPACE:
                return replace(happening, workspace=self.scope_id)
            case RuleScope.PROFILE:
                of_owner = happening.workspace if self.owner is None else min(each.workspace for each in theirs)
                return replace(happening, profile=self.scope_id, workspace=of_owner)
            case _:
                return happening

    def sees(self, whom: Whom) -> bool:
        if self.workspaces is not None and whom.workspace not in self.workspaces:
            return False
        match self.scope:
            case RuleScope.USER:
                return whom.user == self.scope_id
            case RuleScope.WORKSPACE:
                return whom.workspace == self.scope_id
            case RuleScope.PROFILE:
                return whom.profile == self.scope_id
            case _:
                return True


def differences(
    now: Iterable[Happening],
    active: Mapping[str, Severity],
    *,
    kind: AlertKind,
    at_s: float,
    over: str,
    severity_of: Callable[[Happening], Severity],
) -> list[Happening]:
    """What began, became graver or ended for a rule, in that order. `active`: its members that go on, by subject, as
    grave as the rule called them. `severity_of`: what it would call them now."""
    began: list[Happening] = []
    worse: list[Happening] = []
    holds: set[str] = set()
    for happening in now:
        holds.add(happening.subject)
        if happening.subject not in active:
            if len(began) < MOST_AT_ONCE:
                began.append(happening)
        elif severity_of(happening).rank > active[happening.subject].rank:
            worse.append(replace(happening, edge=Edge.WORSE))
    ended = [
        Happening(kind, Edge.ENDED, subject, at_s, severity, words=over)
        for subject, severity in active.items()
        if subject not in holds
    ]
    return [*began, *worse, *ended]


def duration(seconds: float) -> str:
    seconds = max(0, round(seconds))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
