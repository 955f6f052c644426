"""What other runtimes call stuck, restated from their public descriptions to be measured beside our detectors.

Each is told the same trail after each step and says whether it would speak. Where a description leaves room, the
reading that finds more is taken: OpenHands' error is any failed call, its monologue any three replies without a call.
Left out is what needs a model (Gemini CLI asks one after 30 turns), what is about context windows (OpenHands' fifth
rule) and what goes by the names of OpenClaw's own polling tools.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from workspaces.domain.results import ResultClass
from workspaces.domain.trail import SeenCall, Trail, Turn

Baseline = Callable[[Trail], bool]
Pair = tuple[str, str]


def since_a_person_spoke(trail: Trail) -> Sequence[Turn]:
    start = max((index for index, turn in enumerate(trail.turns) if turn.operator_spoke), default=0)
    return trail.turns[start:]


def action(call: SeenCall) -> str:
    return f"{call.name}\n{call.arguments}"


def failed(call: SeenCall) -> bool:
    return call.result_class in (ResultClass.ERROR, ResultClass.TIMEOUT)


def openhands(trail: Trail) -> bool:
    """Same action and observation 4 times, same action with an error 3 times, 3 messages, 6 alternating."""
    turns = since_a_person_spoke(trail)
    if len(turns) >= 3 and not any(turn.calls for turn in turns[-3:]):
        return True
    calls = [call for turn in turns for call in turn.calls]
    pairs = [(action(call), call.result_hash) for call in calls]
    if len(pairs) >= 4 and len(set(pairs[-4:])) == 1:
        return True
    last = calls[-3:]
    if len(last) == 3 and len({action(call) for call in last}) == 1 and all(map(failed, last)):
        return True
    return len(pairs) >= 6 and pairs[-6:-2] == pairs[-4:] and pairs[-1] != pairs[-2]


def gemini_cli(trail: Trail) -> bool:
    """The same tool and arguments 5 times in a row; a piece of 50 characters 10 times close together in its text."""
    turns = since_a_person_spoke(trail)
    calls = [action(call) for turn in turns for call in turn.calls]
    if len(calls) >= 5 and len(set(calls[-5:])) == 1:
        return True
    text = ""
    for turn in reversed(turns):
        text = turn.text + text
        if turn.calls:
            break
    return _chants(text[-5000:])


_PIECE, _TIMES_SAID, _CLOSE = 50, 10, 250


def _chants(text: str) -> bool:
    """A piece that came 10 times, on average at most 5 pieces apart; code and tables are left out."""
    if "```" in text or "|--" in text:
        return False
    places: dict[str, list[int]] = {}
    for index in range(len(text) - _PIECE + 1):
        piece = places.setdefault(text[index : index + _PIECE], [])
        piece.append(index)
        if len(piece) >= _TIMES_SAID and piece[-1] - piece[-_TIMES_SAID] <= _CLOSE * (_TIMES_SAID - 1):
            return True
    return False


def openclaw_warns(trail: Trail) -> bool:
    """Among the last 30 calls: the same tool and arguments 10 times, or two in turn over 10 calls."""
    return _openclaw(trail, 10, progress_counts=False)


def openclaw_stops(trail: Trail) -> bool:
    """The same at 20, and only while the results do not change."""
    return _openclaw(trail, 20, progress_counts=True)


def _openclaw(trail: Trail, threshold: int, *, progress_counts: bool) -> bool:
    calls = [call for turn in trail.turns for call in turn.calls][-30:]
    if not calls:
        return False
    keys: list[Pair] = [(action(call), call.result_hash if progress_counts else "") for call in calls]
    if Counter(keys)[keys[-1]] >= threshold:
        return True
    tail = keys[-threshold:]
    return len(tail) == threshold and len(set(tail)) == 2 and all(a != b for a, b in itertools.pairwise(tail))


BASELINES: dict[str, Baseline] = {
    "OpenHands": openhands,
    "Gemini CLI": gemini_cli,
    "OpenClaw, warning": openclaw_warns,
    "OpenClaw, stop": openclaw_stops,
}
