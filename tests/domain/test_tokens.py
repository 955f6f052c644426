"""What is learned of a model's counting from pairs of (estimated, counted)."""

from __future__ import annotations

import random

import pytest

from workspaces.domain.tokens import SAMPLES, Calibration, calibrate, endpoint_of, error_percent


def pairs(factor: float, offset: int, count: int, *, noise: float = 0.0, seed: int = 1) -> list[tuple[int, int]]:
    draw = random.Random(seed)
    estimates = [draw.randint(800, 40_000) for _ in range(count)]
    return [(x, round((factor * x + offset) * (1 + draw.uniform(-noise, noise)))) for x in estimates]


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.35, 2.4])
@pytest.mark.parametrize("offset", [0, 600])
def test_a_models_counts_are_foretold_within_three_percent(factor: float, offset: int) -> None:
    found = calibrate(pairs(factor, offset, SAMPLES, noise=0.004))
    for estimated, counted in pairs(factor, offset, 10, seed=2):
        assert abs(error_percent(found.tokens(estimated), counted)) < 3


def test_a_few_wild_counts_do_not_move_it() -> None:
    told = pairs(1.2, 0, SAMPLES)
    for place in range(6):
        told[place] = (told[place][0], 2_048)
    found = calibrate(told)
    assert abs(error_percent(found.tokens(10_000), 12_000)) < 5


def test_little_is_taken_for_nothing_and_what_cannot_be_is_bounded() -> None:
    assert calibrate([]) == calibrate([(900, 1_000), (5_000, 6_000)]) == Calibration()
    assert calibrate([(10, 400)] * 20) == Calibration(), "a tiny request tells of the template, not of the tokenizer"
    assert calibrate([(1_000, 90_000)] * 5).factor == 4.0
    assert calibrate([(1_000, 1)] * 5).factor == 0.3
    assert calibrate([(1_000, 0)] * 5) == Calibration()


def test_requests_of_one_size_give_a_ratio_and_no_line() -> None:
    found = calibrate([(1_000 + n, 1_300 + n % 3) for n in range(20)])
    assert found.offset == 0
    assert found.factor == pytest.approx(1.3, abs=0.03)


def test_what_is_stored_is_what_was_reckoned_with() -> None:
    found = calibrate(pairs(1.23456, 321, 12, noise=0.01))
    assert Calibration.from_json(found.as_json()) == found
    assert Calibration.from_json(None) == Calibration()
    assert Calibration().tokens(1_234) == 1_234


def test_calls_are_counted_alike_where_provider_and_host_are_the_same() -> None:
    one = endpoint_of("openai", "https://Me:secret@API.example.com:8443/v1", 1, "m")
    same = endpoint_of("openai", "https://api.example.com:8443/other", 2, "m")
    assert one == same == "openai api.example.com:8443 m"
    assert endpoint_of("openai", "", 1, "m") == "openai m"
    assert one != endpoint_of("openai", "https://api.example.com:8443/v1", 1, "n")
    assert endpoint_of("scripted", "", 1, "m") != endpoint_of("scripted", "", 2, "m")
