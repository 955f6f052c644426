"""When trouble that comes back may be called structural, and when nothing can be said."""

from __future__ import annotations

import pytest

from workspaces.domain.recurrence import Outcome, VersionRate, judge


def versions(*rows: tuple[int, int, str]) -> list[VersionRate]:
    """(tasks, hit, what changed) of v1, v2, …"""
    return [
        VersionRate(number, tasks, hit, changed=tuple(part for part in changed.split("+") if part))
        for number, (tasks, hit, changed) in enumerate(rows, 1)
    ]


def test_three_prompt_changes_at_the_same_rate_are_structural() -> None:
    verdict = judge(versions((20, 10, ""), (20, 9, "prompt"), (20, 11, "prompt"), (20, 10, "prompt")))
    assert verdict.outcome is Outcome.STRUCTURAL
    assert verdict.words == "three prompt changes, same rate: structural"
    assert verdict.judged == 3


def test_changes_of_several_kinds_are_named_one_by_one() -> None:
    verdict = judge(versions((20, 10, ""), (20, 9, "prompt"), (20, 11, "model+limits")))
    assert verdict.words == "two changes (prompt; model and limits), same rate: structural"


def test_a_fall_is_put_down_to_the_change_that_parts_the_tasks_best() -> None:
    verdict = judge(versions((20, 10, ""), (20, 9, "prompt"), (20, 11, "prompt"), (20, 0, "limits")))
    assert verdict.outcome is Outcome.FELL
    assert verdict.at == 4
    assert verdict.words.startswith("fell after the change of limits in v4: 30 of 60 → 0 of 20 tasks")


def test_a_rise_is_told_as_well() -> None:
    verdict = judge(versions((30, 1, ""), (30, 20, "model")))
    assert verdict.outcome is Outcome.ROSE
    assert verdict.words.startswith("rose after the change of model in v2")


def test_one_change_that_did_not_help_is_not_yet_structural() -> None:
    verdict = judge(versions((10, 6, ""), (12, 7, "prompt")))
    assert verdict.outcome is Outcome.SAME
    assert "not enough to call it structural" in verdict.words


@pytest.mark.parametrize("rows", [((2, 1, ""), (2, 1, "prompt")), ((1, 1, ""), (1, 0, "prompt"), (2, 0, "limits"))])
def test_a_handful_of_tasks_tells_nothing(rows: tuple[tuple[int, int, str], ...]) -> None:
    verdict = judge(versions(*rows))
    assert verdict.outcome is Outcome.TOO_FEW
    assert verdict.words.startswith("too few tasks to tell (n = 4 tasks; v1: ")


def test_rare_trouble_in_many_tasks_is_still_too_few_of_it() -> None:
    """2 of 40 and 2 of 40: had it ended for good, 0 of 40 would not have stood out either."""
    assert judge(versions((40, 2, ""), (40, 2, "prompt"), (40, 2, "prompt"))).outcome is Outcome.TOO_FEW


def test_one_version_has_nothing_to_be_compared_with() -> None:
    assert judge(versions((9, 3, ""))).words == "one version only (n = 9 tasks): no change to compare"
    assert judge([]).outcome is Outcome.UNCHANGED
    assert judge(versions((9, 0, ""), (9, 0, "prompt"))).words == "not seen in n = 18 tasks"


def test_what_a_version_without_tasks_changed_is_counted_to_the_next() -> None:
    verdict = judge(versions((30, 20, ""), (0, 0, "model"), (30, 1, "prompt")))
    assert verdict.words.startswith("fell after the change of model and prompt in v3")
