"""Diffs apply: patch(1) makes the new text of the old one."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workspaces.domain.diffs import unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", "", " d", "e\x0cf"]), max_size=30).map("\n".join)


def test_nothing_changed_is_no_diff() -> None:
    assert unified_diff("a\nb", "a\nb", "f") == ""
    assert unified_diff("", "", "f") == ""


def test_a_change_far_down_has_the_right_line_numbers() -> None:
    before = "".join(f"{number}\n" for number in range(1, 101))
    diff = unified_diff(before, before.replace("\n50\n", "\nfifty\n"), "f")
    assert "@@ -47,7 +47,7 @@" in diff
    assert "-50\n+fifty\n" in diff


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diffs here")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=LINES, after=LINES)
def test_git_applies_every_diff(tmp_path: Path, before: str, after: str) -> None:
    diff = unified_diff(before, after, "f")
    if not before or not after or not diff:
        return  # making and deleting a file is said by other headers
    (tmp_path / "f").write_text(before, newline="")
    subprocess.run(["git", "apply", "--unidiff-zero", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert (tmp_path / "f").read_bytes() == after.encode()


def test_two_long_texts_with_nothing_in_common_take_no_time() -> None:
    before = "".join(f"a{number % 7}\n" for number in range(50_000))
    after = "".join(f"b{number % 7}\n" for number in range(50_000))
    started = time.monotonic()
    assert unified_diff(before, after, "f").count("\n") == 100_003
    assert time.monotonic() - started < 2
