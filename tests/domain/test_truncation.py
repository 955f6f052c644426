"""What gives a silently cut prompt away, what does not, and what is said about a cut reply."""

from __future__ import annotations

import pytest

from workspaces.domain.tokens import Calibration
from workspaces.domain.truncation import (
    CutReply,
    SentCall,
    cut_reply,
    cut_told,
    cut_words,
    prompt_shortfall,
    prompt_words,
    window_with,
)

KNOWN = Calibration(1.1, 0, 20)
NOTHING = Calibration()


def calls(*pairs: tuple[int, int]) -> list[SentCall]:
    return [SentCall(seq * 5, seq, seq, estimated, counted) for seq, (estimated, counted) in enumerate(pairs, 1)]


@pytest.mark.parametrize(
    ("told", "held"),
    [
        ([(3_900, 4_096), (4_600, 4_096), (5_900, 4_096)], 4_096),  # cut at the window itself
        ([(3_900, 4_050), (4_600, 3_400), (5_900, 3_800)], 4_096),  # whole messages go until it fits
        ([(9_000, 2_500), (9_400, 2_500), (9_800, 2_480)], 2_500),  # a proxy's own limit
        ([(9_000, 4_090), (9_400, 4_090)], 4_096),  # from the first call on
    ],
)
@pytest.mark.parametrize("calibration", [KNOWN, NOTHING])
def test_a_count_that_stays_while_more_is_sent_is_a_cut_prompt(
    told: list[tuple[int, int]], held: int, calibration: Calibration
) -> None:
    found = prompt_shortfall(calls(*told), calibration)
    assert found is not None
    assert found.held == held
    assert found.expected >= held
    words = prompt_words(found, 32_768)
    assert f"{held:,}" in words
    assert "num_ctx 32768" in words


@pytest.mark.parametrize(
    "told",
    [
        [(1_000, 1_100), (1_500, 1_650), (2_100, 2_300)],  # an ordinary task
        [(4_000, 4_090), (4_100, 4_180)],  # one that happens to stand at 4,096
        [(4_000, 4_096), (4_070, 4_104), (4_150, 4_110)],  # small steps: too little was sent to tell
        [(8_000, 8_400), (8_600, 310), (9_300, 290)],  # cached tokens are left out of the count
        [(8_000, 8_400), (5_000, 5_200), (5_600, 5_800)],  # compacted here
        [(8_000, 4_096), (8_000, 4_096), (8_000, 4_096)],  # the same request again
        [(900, 300), (1_600, 300), (2_400, 300)],  # a script that always says the same small number
        [(100_000, 110_000), (100_700, 110_060), (101_500, 110_110)],  # long runs of blanks take few tokens
        [(5_000, 2_040)],
    ],
)
@pytest.mark.parametrize("calibration", [KNOWN, NOTHING])
def test_what_only_looks_like_it_is_none(told: list[tuple[int, int]], calibration: Calibration) -> None:
    assert prompt_shortfall(calls(*told), calibration) is None


def test_a_learned_window_leaves_room_for_a_reply() -> None:
    assert window_with(32_000, None, 4_096) == (32_000, 4_096)
    assert window_with(32_000, 64_000, 4_096) == (32_000, 4_096)
    assert window_with(32_000, 4_096, 4_096) == (4_096, 1_024)


def cut(**told: object) -> CutReply | None:
    given = {"finish_reason": "length", "limit": 4_096, "written": 4_096, "counted": 900, "call": "", "whole_calls": 0}
    return cut_reply(**{**given, **told})  # type: ignore[arg-type]


def test_a_reply_that_ended_by_itself_is_not_cut() -> None:
    assert cut(finish_reason="stop") is None
    assert cut(finish_reason="tool_calls") is None


def test_a_cut_reply_says_where_and_the_model_how_to_go_on() -> None:
    inside, after, before = cut(call="write_file"), cut(whole_calls=2), cut()
    assert inside is not None
    assert after is not None
    assert before is not None
    assert inside.window is after.window is None
    assert "inside the call write_file, which was not run" in cut_words(inside, 4)
    assert "several calls" in cut_told(inside)
    assert "2 whole calls, which were read" in cut_told(after)
    assert "nothing was done" in cut_told(before)
    assert "4,096" in cut_told(before)


def test_a_reply_that_filled_the_providers_window_tells_how_large_that_is() -> None:
    found = cut(written=800, counted=3_290)
    assert found is not None
    assert found.window == 4_096
    assert "window of 4,096" in cut_words(found, 4)
    unknown = cut(written=800, counted=900)
    assert unknown is not None
    assert unknown.window is None
    by_its_limit = cut(written=4_096, counted=4_080)
    assert by_its_limit is not None
    assert by_its_limit.window is None, "it ended where it was told to, wherever that happens to be"
    assert cut(written=None, counted=None) is not None
