"""What differs between two versions of a profile, in words."""

from __future__ import annotations

from workspaces.domain.editions import changes, parts_of


def test_equal_versions_differ_in_nothing() -> None:
    assert changes({"model": "a", "tools": ["x"]}, {"model": "a", "tools": ["x"]}) == []


def test_each_change_is_put_to_its_part_in_a_steady_order() -> None:
    old = {"max_steps": 100, "model": "small", "tools": ["shell"], "detectors": {}, "system_prompt": "Be brief."}
    new = {
        "max_steps": 1_500,
        "model": "large",
        "tools": ["shell", "http"],
        "detectors": {"loop": {"nudge": 3}},
        "system_prompt": "Be brief. Test.",
    }
    found = changes(old, new)
    assert parts_of(found) == ("prompt", "model", "tools", "limits", "detectors")
    words = {change.column: change.words for change in found}
    assert words["max_steps"] == "max steps: 100 → 1,500"
    assert words["tools"] == "tools: + http"
    assert words["detectors"] == 'detectors: loop none → {"nudge":3}'


def test_a_long_prompt_is_told_by_its_lines_and_shown_as_a_diff() -> None:
    old = "\n".join(f"Rule {n}: mind the gap between words." for n in range(5))
    (change,) = changes({"system_prompt": old}, {"system_prompt": f"{old}\nRule 5: stop when it is done."})
    assert change.words == "system prompt: 2 lines added, 1 removed"  # the last line had no end
    assert "+Rule 5: stop when it is done." in change.diff


def test_entries_are_told_by_their_names() -> None:
    old = {"declared_tools": [{"name": "pay", "effect": "external"}, {"name": "look"}]}
    new = {"declared_tools": [{"name": "pay", "effect": "irreversible"}, {"name": "write"}]}
    assert changes(old, new)[0].words == "declared tools: + write, − look, changed pay"


def test_an_unknown_column_is_a_part_of_its_own() -> None:
    (change,) = changes({}, {"new_thing": True})
    assert (change.part, change.words) == ("new thing", "new thing: none → yes")
