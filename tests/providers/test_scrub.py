"""What a server echoes of a key is taken out of the message: whole, with its middle masked, or with its end cut off."""

from __future__ import annotations

import pytest

from workspaces.providers.faults import scrub

KEY = "sk-abcdefgh0123456789ABCDEFGH"


@pytest.mark.parametrize(
    "echoed",
    [KEY, "sk-abcd***EFGH", "sk-ab**********", KEY[:16], KEY[:12] + "..."],
    ids=["whole", "masked", "masked to its end", "cut", "cut, with dots"],
)
def test_an_echoed_key_is_taken_out(echoed: str) -> None:
    told = scrub(f"Incorrect API key provided: {echoed} was not found", [KEY])
    assert told.startswith("Incorrect API key provided: [key]")
    assert told.endswith("was not found")
    assert "sk-ab" not in told


def test_what_is_no_key_stays() -> None:
    assert scrub("model sk-other is ** not ** known", [KEY]) == "model sk-other is ** not ** known"
