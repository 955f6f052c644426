"""What a provider cut off: of a prompt, in silence, or of a reply. Pure.

A prompt that is too long for a server's real window is often not refused: the oldest part is dropped and the rest
answered (Ollama's num_ctx, some proxies). What gives it away is the count that comes back: it stays where it is, or
falls, while more is sent. A server that leaves cached tokens out of its count reports only what is new, which is a
small part of the earlier count: that is no truncation.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.domain.tokens import Calibration

LOOKED_AT = 3  # newest calls of a line

# Windows that servers are started with: powers of two. Ollama's default was 2,048 for long, then 4,096.
USUAL_WINDOWS = tuple(2**n for n in range(11, 18))
_LEAST_COUNTED = 1_000  # below it there is no window to run into
_GROWTH_EACH = 64  # estimated tokens that each call must have more than the one before
_GROWTH_IN_ALL = 512
_STILL_SAME = 16  # counted tokens: a call and its result alone are more
_CACHE_LIKE = 0.6  # of the earlier count: below it the server counts only what is new
_AT_A_WINDOW = 0.985
_SHORT_BY = 1.3
_UNKNOWN_FACTOR = 0.75  # of an estimate, where nothing is known of the model: repetitive text takes fewer tokens


@dataclass(frozen=True, slots=True)
class SentCall:
    """A replied call of a step: tokens as estimated (raw) and as the provider counted them. `seq`: of the reply."""

    seq: int
    step: int
    model_call: int
    estimated: int
    counted: int


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The provider saw at most `held` tokens of a prompt that should have had `expected`."""

    held: int
    expected: int
    calls: tuple[SentCall, ...]


def prompt_shortfall(calls: Sequence[SentCall], calibration: Calibration) -> Shortfall | None:
    """The newest calls of one line and model, oldest first. `calibration`: from other calls than suspected ones.

    Three calls of which each sent more while the count did not rise; or two where it also stands right below a window
    that servers are started with, and is well short of what was to be expected.
    """
    for length in (3, 2):
        newest = tuple(calls[-length:])
        if len(newest) < length or not stuck(newest):
            continue
        counted = max(call.counted for call in newest)
        expected = _expected(newest[-1].estimated, calibration)
        if length == 3 and newest[-1].estimated - newest[0].estimated >= _GROWTH_IN_ALL:
            return Shortfall(_window_at(counted) or counted, max(expected, counted), newest)
        if _window_at(counted) and expected > _SHORT_BY * counted:
            return Shortfall(_window_at(counted) or counted, expected, newest)
    return None


def stuck(calls: Sequence[SentCall]) -> bool:
    """Whether each call sent more than the one before and the count did not rise, nor fell as it does with a cache."""
    first = calls[0].counted
    if first < _LEAST_COUNTED:
        return False
    for before, after in itertools.pairwise(calls):
        if after.estimated - before.estimated < _GROWTH_EACH:
            return False
        if not _CACHE_LIKE * first <= after.counted <= first + _STILL_SAME:
            return False
    return True


def _expected(estimated: int, calibration: Calibration) -> int:
    return calibration.tokens(estimated) if calibration.samples else int(estimated * _UNKNOWN_FACTOR)


def _window_at(counted: int) -> int | None:
    """The usual window that a count has run into."""
    return next((window for window in USUAL_WINDOWS if window * _AT_A_WINDOW <= counted <= window), None)


def window_with(window: int, learned: int | None, max_output: int) -> tuple[int, int]:
    """(the window to keep to, what of it is kept for the reply) where the provider is known to hold less."""
    if learned is None or learned >= window:
        return window, max_output
    return learned, min(max_output, learned // 4)


def prompt_words(found: Shortfall, window: int) -> str:
    """What was seen, with its figures, and what a person can do."""
    steps = ", ".join(str(call.step) for call in found.calls)
    counts = ", ".join(f"{call.counted:,}" for call in found.calls)
    sent = ", ".join(f"{call.estimated:,}" for call in found.calls)
    return (
        f"At steps {steps} the provider counted {counts} prompt tokens, while what was sent grew "
        f"(estimated {sent}): it holds about {found.held:,} and dropped the rest in silence. From now on requests keep "
        f"to {found.held:,} tokens, so that what goes is chosen and recorded here. The profile says {window:,}: start "
        f"the server with that window (Ollama: num_ctx {window}) and resolve this incident, or save a profile version "
        f"with a window of {found.held:,}."
    )


@dataclass(frozen=True, slots=True)
class CutReply:
    """A reply that ended at a limit. `call`: the name of the call that it ended in, empty when in none.

    `window`: the provider's window, where that is what ended it, and not the limit that it was given.
    """

    limit: int  # tokens that it was allowed
    written: int | None  # tokens as the provider counted them
    call: str
    whole_calls: int  # before it ended
    window: int | None


def cut_reply(
    *, finish_reason: str, limit: int, written: int | None, counted: int | None, call: str, whole_calls: int
) -> CutReply | None:
    """`counted`: the prompt's tokens. None when the reply ended by itself."""
    if finish_reason != "length":
        return None
    window = None
    if written is not None and counted is not None and written < 0.9 * limit:
        window = _window_at(counted + written)
    return CutReply(limit, written, call, whole_calls, window)


def cut_words(cut: CutReply, step: int) -> str:
    where = f"inside the call {cut.call}, which was not run" if cut.call else "before it was finished"
    if cut.window is not None:
        return (
            f"The reply of step {step} broke off after {cut.written:,} of {cut.limit:,} tokens, {where}: with its "
            f"prompt it had filled the provider's window of {cut.window:,}. From now on requests keep to that."
        )
    after = "" if cut.written is None else f" (the provider counted {cut.written:,})"
    return f"The reply of step {step} ended at the limit of {cut.limit:,} output tokens{after}, {where}."


def cut_told(cut: CutReply) -> str:
    """What the model reads, once."""
    most = cut.limit if cut.window is None or cut.written is None else cut.written
    pieces = max(400, int(most * 3.6 * 0.5) // 100 * 100)
    if cut.call:
        return (
            f"Your reply was cut off at {most:,} tokens, inside the arguments of {cut.call}: that call was not run. "
            f"Do it in several calls, each with at most about {pieces:,} characters, one after the other."
        )
    if cut.whole_calls:
        return (
            f"Your reply was cut off at {most:,} tokens, after {cut.whole_calls} whole "
            f"call{'' if cut.whole_calls == 1 else 's'}, which {'was' if cut.whole_calls == 1 else 'were'} read. "
            "What you meant to write after that did not arrive: go on from here, with less at once."
        )
    return (
        f"Your reply was cut off at {most:,} tokens before it held a call, so nothing was done. Write at most about "
        f"{pieces:,} characters at once: split the work, and call a tool for the first part now."
    )
