"""What a rule does stands in one sentence that leaves nothing out, and spans of time are read as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from workspaces.domain.alert_defaults import DEFAULTS
from workspaces.domain.alerts import AlertKind, GroupBy, RuleScope
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.rule_words import OFFERED, ORDER, RuleSays, read_span, sentence, span

INCIDENT = (AlertKind.INCIDENT,)


def test_a_rule_about_the_sandboxes_of_one_workspace_says_of_which() -> None:
    says = RuleSays(kinds=[AlertKind.SANDBOX_UNHEALTHY], scope=RuleScope.WORKSPACE, what="ledger")
    assert "in the workspace ledger" in sentence(says)


def test_a_rule_is_said_in_plain_words() -> None:
    rule = RuleSays(
        kinds=INCIDENT, min_severity=Severity.ERROR, group_by=GroupBy.POOL, cooldown_s=600, endpoints=["ops-hook"]
    )
    assert sentence(rule) == (
        "When an incident of error or worse opens in any workspace, at once; one alert a quota pool; "
        "not again within 10 min; to ops-hook and the bell."
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hold_s": 300}, "once it has held for 5 min"),
        ({"remind_s": 7_200}, "reminded every 2 h while it is open"),
        ({"severity": Severity.CRITICAL}, "called critical whatever it is"),
        ({"tell_resolved": False}, "not told when it ends"),
        ({}, "to the bell alone"),
        ({"endpoints": ["a", "b"]}, "to a, b and the bell"),
        ({"of_the_site": False}, "in any of your workspaces"),
        ({"scope": RuleScope.WORKSPACE, "what": "shop"}, "in the workspace shop"),
        ({"scope": RuleScope.USER, "what": "olive"}, "in what olive has started"),
        ({"scope": RuleScope.PROFILE, "what": "clerk"}, "with the profile clerk"),
        ({"incident_kinds": [IncidentKind.LOOP, IncidentKind.STORM]}, "an incident (loop or storm) opens"),
        ({"incident_kinds": [k for k in IncidentKind if k != "storm"]}, "an incident (any but storm) opens"),
        ({"kinds": [AlertKind.TASK_STUCK], "params": {"stuck_minutes": 7}}, "no event for 7 minutes"),
        ({"kinds": [AlertKind.TASK_STUCK]}, "no event for 30 minutes"),
        ({"kinds": [AlertKind.TASK_FAILED, *INCIDENT], "min_severity": Severity.ERROR}, "fails (error or worse) in"),
        ({"kinds": [AlertKind.SPEND_RATE]}, "last hour cost 3 times what is usual and at least 5 USD in any workspace"),
        ({"kinds": [AlertKind.WORKER_UNHEALTHY]}, "30 seconds, at once"),
    ],
)
def test_the_sentence_says_what_is_set(fields: dict[str, Any], words: str) -> None:
    assert words in sentence(RuleSays(**({"kinds": INCIDENT} | fields)))


def test_every_kind_is_offered_and_said() -> None:
    assert set(ORDER) == set(AlertKind)
    assert len(ORDER) == len(AlertKind)
    assert all(OFFERED.values())
    said = {sentence(RuleSays(kinds=[kind])) for kind in AlertKind}
    assert len(said) == len(AlertKind)
    for default in DEFAULTS:
        assert sentence(RuleSays(kinds=default.kinds, incident_kinds=default.incident_kinds)).startswith("When ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("90", 90), ("90 s", 90), ("10 min", 600), ("10m", 600), ("2 Hours", 7_200), (" 1 d ", 86_400)],
)
def test_a_span_is_read_as_people_write_it(text: str, seconds: int) -> None:
    assert read_span(text) == seconds
    assert read_span(span(seconds)) == seconds


@pytest.mark.parametrize("text", ["soon", "-5 min", "1.5 h", "10 weeks", "²", "9" * 40])
def test_a_span_that_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="10 min"):
        read_span(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (90, "90 s"), (5_400, "90 min"), (86_400, "1 d")]
)
def test_a_span_is_written_in_the_largest_unit_that_is_whole(seconds: int, text: str) -> None:
    assert span(seconds) == text
