"""The simulation in small: the product's rules at a provider that refuses, with faults and an outage."""

from __future__ import annotations

from tests.bench.quota_provider import work
from tests.bench.quota_simulation import LIMITS, BacksOff, Product, figures_of
from workspaces.domain.quotas import Limits


def test_a_pool_that_everybody_wants_is_used_and_shared():
    limits = Limits(**{name: int(value * 0.012) for name, value in LIMITS.as_json().items()})
    ours, theirs = (
        figures_of(strategy(work(users=60, tasks=700, seed=5, limits=limits, begins_within_s=300.0), 5).run())
        for strategy in (Product, BacksOff)
    )
    assert ours["calls"] == theirs["calls"], "all the work was done, by both"
    assert ours["utilisation"] > 0.75
    assert ours["jain"] > 0.95 > 0.6 > theirs["jain"]
    assert ours["retries"] <= ours["retries_at_most"]
    assert ours["refused"] * 20 < theirs["refused"]
