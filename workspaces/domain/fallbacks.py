"""When another profile's model answers in the place of a task's own, and which. Pure. A fallback has no fallback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_WAIT_S = 86_400
_KNOWN = frozenset({"profile_version", "when_wait_over_s", "on_circuit_open"})


@dataclass(frozen=True, slots=True)
class Fallback:
    """`when_wait_over_s` None: however long the pool lets the task wait, it waits."""

    profile_version: int
    when_wait_over_s: int | None = None
    on_circuit_open: bool = True

    def why(self, *, expected_wait_s: float | None, circuit_open: bool) -> str:
        """Why it is to answer now, in words; "" when it is not. `expected_wait_s` None: nobody can tell how long."""
        if self.on_circuit_open and circuit_open:
            return "the pool's circuit is open"
        if self.when_wait_over_s is None:
            return ""
        if expected_wait_s is None:
            return f"nobody can tell how long the wait is, and it may take {self.when_wait_over_s} s"
        if expected_wait_s > self.when_wait_over_s:
            return f"the expected wait of {expected_wait_s:.0f} s is longer than {self.when_wait_over_s} s"
        return ""

    def as_json(self) -> dict[str, Any]:
        return {
            "profile_version": self.profile_version,
            "when_wait_over_s": self.when_wait_over_s,
            "on_circuit_open": self.on_circuit_open,
        }


def read_fallback(stored: Mapping[str, Any] | None) -> Fallback | None:
    """None: there is none. Raises ValueError with words for a form."""
    if not stored:
        return None
    unknown = sorted(set(stored) - _KNOWN)
    if unknown:
        raise ValueError(f"There is no setting {unknown[0]} of a fallback.")
    version, over = stored.get("profile_version"), stored.get("when_wait_over_s")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError("A fallback names the profile version that answers.")
    if over is not None and (not isinstance(over, int) or isinstance(over, bool) or not 0 <= over <= LONGEST_WAIT_S):
        raise ValueError(f"A fallback's wait is a whole number of seconds from 0 to {LONGEST_WAIT_S}.")
    on_open = stored.get("on_circuit_open", True)
    if not isinstance(on_open, bool):
        raise ValueError("Whether a fallback answers while the circuit is open is true or false.")
    if over is None and not on_open:
        raise ValueError("A fallback that is used neither while the circuit is open nor after a wait is never used.")
    return Fallback(version, over, on_open)
