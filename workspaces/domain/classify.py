"""Names results: what a command's end means, and the line in which a model is told so. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from workspaces.domain.results import ResultClass

R = ResultClass

# a required output that is one of these says as little as none
_HOLLOW = (b"", b"null", b"{}", b"[]", b'""', b"None")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `exit_code` is None when it was killed for its timeout, or nobody knows."""

    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False  # bytes of its output were lost
    timeout_s: float = 0.0


Named = tuple[ResultClass, str]


def of_command(ended: Ended, *, output_required: bool = False) -> Named:
    """The class of a command's result and why, worst news first.

    `output_required`: the output is the result (a declared tool must answer), so nothing is `empty`.
    """
    lost = "; part of its output was lost, there was more than is kept" if ended.truncated else ""
    if ended.timed_out:
        return (
            R.TIMEOUT,
            f"the command was killed after {ended.timeout_s:g} s and may have done a part of its work{lost}",
        )
    if ended.exit_code is None:
        return R.AMBIGUOUS, "the command ended without an exit code: it cannot be told whether it worked"
    if ended.exit_code != 0:
        return R.ERROR, f"{exit_words(ended.exit_code)}{lost}"
    if ended.truncated:
        return R.TRUNCATED, "the command succeeded; part of its output was lost, there was more than is kept"
    bare = ended.stdout.strip() if len(ended.stdout) <= 4096 else b"much"
    if output_required and bare in _HOLLOW:
        if bare:
            return R.EMPTY, f"the command succeeded and printed an empty value ({bare.decode()})"
        only = " to standard output, only to standard error" if ended.stderr.strip() else ""
        return R.EMPTY, f"the command succeeded and printed nothing{only}"
    return R.OK, ""


def of_search(ended: Ended) -> Named:
    """grep's end: 1 means that no line matched, which is an answer, not a failure."""
    if ended.exit_code == 1 and not ended.timed_out and not ended.stderr.strip():
        return R.EMPTY, "the search ran and no line matched"
    if ended.exit_code == 2 and ended.stdout:  # some files could not be read, others matched
        return of_command(Ended(0, ended.stdout, ended.stderr, truncated=ended.truncated))
    return of_command(ended)


def exit_words(code: int) -> str:
    """An exit code in words. Meanings: POSIX shell (126, 127), 128 + signal."""
    known = {
        126: "the command was found and cannot be executed",
        127: "the command was not found",
        137: "the command was killed (SIGKILL), most often for using more memory than the limit",
    }
    if code in known:
        return f"exit code {code}: {known[code]}"
    number = -code if code < 0 else code - 128
    if number > 0 and number in signal.valid_signals() and number < 32:
        return f"exit code {code}: the command was ended by {signal.Signals(number).name}"
    return f"exit code {code}"


def named(result_class: ResultClass, why: str) -> str:
    """The line that names a result to the model, or an empty text for a plain success."""
    if result_class is R.OK:
        return ""
    return f"[result: {result_class.value} - {why}]" if why else f"[result: {result_class.value}]"
