"""What changed between repeated calls: arguments, result, class; or plainly nothing."""

from __future__ import annotations

from typing import Any

from workspaces.domain.attempts import Attempt, compared, summary


def attempt(step: int, arguments: Any = None, result: str = "404", **fields: Any) -> Attempt:
    fields = {"name": "http_request", "result_class": "error"} | fields
    return Attempt(seq=step * 10, step=step, tool_call=step, arguments=arguments, result=result, **fields)


def test_the_same_call_with_the_same_result_says_that_nothing_changed() -> None:
    found = compared([attempt(n, {"url": "/x"}) for n in (4, 7, 9)])
    assert found[0].previous is None
    assert [each.nothing_changed for each in found[1:]] == [True, True]
    assert summary(found) == "Nothing changed between the 3 attempts: not the arguments, not the result."


def test_arguments_are_compared_place_by_place() -> None:
    _, second = compared(
        [
            attempt(1, {"url": "/x", "headers": {"a": 1}, "tags": [1, 2], "old": True}),
            attempt(2, {"url": "/y", "headers": {"a": 1, "b": 2}, "tags": [1, 3]}),
        ]
    )
    assert [(each.path, each.before, each.after) for each in second.arguments] == [
        ("$.url", "/x", "/y"),
        ("$.headers.b", "", "2"),
        ("$.tags[1]", "2", "3"),
        ("$.old", "true", ""),
    ]
    assert second.words == ("4 arguments changed",)


def test_a_cosmetic_change_that_gets_the_same_answer_is_told_apart() -> None:
    found = compared([attempt(1, {"q": "a"}), attempt(2, {"q": "a "}), attempt(3, {"q": "a"})])
    assert summary(found) == "Of 2 repeats none changed nothing; the arguments differed in 2, the result in none."


def test_a_changed_result_and_class_are_shown() -> None:
    _, second = compared([attempt(1, {}, "404\nnot found"), attempt(2, {}, "200\nfound", result_class="ok")])
    assert "-404" in second.result
    assert "+200" in second.result
    assert second.class_before == "error"
    assert second.words == ("the result changed", "the class went from error to ok")


def test_alternating_tools_are_each_compared_with_their_own_last_call() -> None:
    calls = [
        attempt(1, {"p": 1}),
        attempt(2, {"q": 1}, name="edit"),
        attempt(3, {"p": 1}),
        attempt(4, {"q": 1}, name="edit"),
    ]
    assert [each.previous and each.previous.step for each in compared(calls)] == [None, None, 1, 2]
    assert all(each.nothing_changed for each in compared(calls)[2:])


def test_unreadable_arguments_are_compared_as_they_were_written() -> None:
    _, second = compared([attempt(1, None, raw='{"a": '), attempt(2, None, raw='{"a": 1')])
    assert second.arguments[0].path == "$"
    _, same = compared([attempt(1, None, raw='{"a": '), attempt(2, None, raw='{"a": ')])
    assert same.nothing_changed


def test_one_is_not_true_and_a_long_result_says_what_was_not_compared() -> None:
    _, second = compared([attempt(1, {"n": 1}), attempt(2, {"n": True})])
    assert second.arguments
    long = "x" * 60_000
    _, far = compared([attempt(1, {}, long + "a"), attempt(2, {}, long + "b")])
    assert far.clipped
    assert "further on" in far.result


def test_a_single_call_has_nothing_to_be_compared_with() -> None:
    assert summary(compared([attempt(1, {})])) == ""
