"""Results are named for what they are."""

from __future__ import annotations

import pytest

from workspaces.domain.classify import Ended, named, of_command, of_search
from workspaces.domain.results import ResultClass as R


@pytest.mark.parametrize(
    ("ended", "required", "expected", "why"),
    [
        (Ended(0, b"out"), False, R.OK, ""),
        (Ended(0), False, R.OK, ""),
        (Ended(0, b" \n"), True, R.EMPTY, "printed nothing"),
        (Ended(0, b"{}\n"), True, R.EMPTY, "empty value ({})"),
        (Ended(0, b"", b"warning"), True, R.EMPTY, "only to standard error"),
        (Ended(0, b"0"), True, R.OK, ""),
        (Ended(3, b"out"), True, R.ERROR, "exit code 3"),
        (Ended(127), False, R.ERROR, "not found"),
        (Ended(137), False, R.ERROR, "memory"),
        (Ended(139), False, R.ERROR, "SIGSEGV"),
        (Ended(255), False, R.ERROR, "exit code 255"),
        (Ended(0, b"x", truncated=True), False, R.TRUNCATED, "lost"),
        (Ended(1, b"x", truncated=True), False, R.ERROR, "lost"),
        (Ended(None, b"x", timed_out=True, timeout_s=2), False, R.TIMEOUT, "after 2 s"),
        (Ended(None), False, R.AMBIGUOUS, "cannot be told"),
    ],
)
def test_a_commands_end_has_a_class_and_a_reason(ended: Ended, required: bool, expected: R, why: str) -> None:
    result_class, said = of_command(ended, output_required=required)
    assert result_class is expected
    assert why in said
    assert bool(said) is (expected is not R.OK)


def test_a_search_without_a_match_is_an_answer_and_not_a_failure() -> None:
    assert of_search(Ended(1))[0] is R.EMPTY
    assert of_search(Ended(1, stderr=b"sh: grep: Killed"))[0] is R.ERROR
    assert of_search(Ended(2, b"a:1:x", b"grep: b: Permission denied"))[0] is R.OK
    assert of_search(Ended(None, timed_out=True))[0] is R.TIMEOUT


def test_the_model_is_told_every_class_but_success() -> None:
    assert named(R.EMPTY, "the command succeeded and printed nothing") == (
        "[result: empty - the command succeeded and printed nothing]"
    )
    assert named(R.OK, "") == ""
    assert all(named(one, "") == f"[result: {one.value}]" for one in R if one is not R.OK)
