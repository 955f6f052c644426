"""The audit says what is there, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workspaces.domain.audit import Audit, audit
from workspaces.domain.audit_detectors import acts, finds
from workspaces.domain.audit_facts import Facts, Item, Presence, Role, ToolsFacts
from workspaces.domain.detection import detection_of
from workspaces.domain.incidents import Cluster, FailureMode, IncidentKind
from workspaces.domain.thresholds import NAMES

P = Presence
WELL = Facts(
    task=7,
    tasks=1,
    events=90,
    append_only=("event", "message"),
    chain_checked=True,
    messages=20,
    steps=6,
    branches=1,
    checkpoints=7,
    restorable=7,
    workspaces=1,
    model_calls=6,
    pools=1,
    pooled_calls=6,
    tool_calls=9,
    steps_with_manifest=6,
    rebuilt=3,
    rebuilt_equal=3,
    exit_conditions=1,
    note_versions=2,
    tools=ToolsFacts(versions=1, with_policy=1),
)


def item(made: Audit, name: str) -> Item:
    (found,) = {each.name: each for each in made.items if each.name.startswith(name)}.values()
    return found


def test_there_is_a_row_for_each_failure_and_each_cluster() -> None:
    made = audit(Facts())
    assert [row.value for row in made.modes] == [mode.value for mode in FailureMode]
    assert [row.value for row in made.clusters] == [cluster.value for cluster in Cluster]
    for row in (*made.modes, *made.clusters):
        assert row.artifacts, row.name
        assert row.controls, row.name
        assert all(each.role is Role.ARTIFACT for each in row.artifacts)
        assert all(each.why for each in (*row.artifacts, *row.controls))


def test_what_does_not_exist_yet_is_missing() -> None:
    made = audit(WELL)
    for name in ("Agents that talk", "Success judged"):
        found = [each for row in made.clusters for each in row.controls if each.name.startswith(name)]
        assert {each.presence for each in found} == {P.MISSING}, name
    assert {row.value: row.presence for row in made.modes}["loop"] is P.PARTIAL, "a step limit stops it at the end"


@pytest.mark.parametrize(
    ("changed", "name", "presence", "said"),
    [
        ({}, "Event log", P.PRESENT, "checked just now"),
        ({"chain_breaks": 2}, "Event log", P.MISSING, "broken at 2 places"),
        ({"append_only": ("message",)}, "Event log", P.PARTIAL, "triggers are gone"),
        ({"chain_checked": False}, "Event log", P.PRESENT, "manage.py verify"),
        ({}, "Checkpoints", P.PRESENT, "7 of 7"),
        ({"restorable": 4}, "Checkpoints", P.PARTIAL, "files of 3 are no longer kept"),
        ({"restorable": 0}, "Checkpoints", P.MISSING, "0 of 7"),
        ({"checkpoints": 0, "restorable": 0}, "Checkpoints", P.MISSING, "none was saved"),
        ({"checkpoints": 0, "restorable": 0, "steps": 0}, "Checkpoints", P.PARTIAL, "none was due"),
        ({"full_disks": 1}, "Checkpoints", P.PARTIAL, "no disk space"),
        ({"local_workspaces": 1}, "Checkpoints", P.PARTIAL, "without isolation"),
        ({"local_workspaces": 1}, "Isolated sandboxes", P.MISSING, "1 workspace of 1"),
        ({"restorable": 0}, "Roll back", P.MISSING, "no checkpoint"),
        ({"ledger_unknown": 1}, "Effect ledger", P.PARTIAL, "1 of unknown outcome"),
        ({"open_networks": 1}, "A completed effect", P.PARTIAL, "the ledger does not see"),
        ({"unpriced": 6}, "Usage records", P.MISSING, "price of 6"),
        ({"unpriced": 2}, "Usage records", P.PARTIAL, "price of 2"),
        ({}, "A pool shared by tasks", P.PRESENT, "6 calls admitted by 1 pool"),
        ({"pools_unlimited": 1}, "A pool shared by tasks", P.PARTIAL, "limits of 1 are not known"),
        ({"pools": 0, "pooled_calls": 0}, "A pool shared by tasks", P.MISSING, "none of them through a pool"),
        ({"pools": 0, "model_calls": 0}, "A pool shared by tasks", P.PARTIAL, "no call was made yet"),
        ({"pools_not_closed": 1, "circuits_opened": 2}, "Retries paid", P.PARTIAL, "1 pool not closed again"),
        ({}, "Budgets", P.MISSING, "none is set"),
        ({"budgets": 1, "tasks_with_budget": 1}, "Budgets", P.PRESENT, "1 budget in force"),
        ({"budgets": 1, "tasks": 3, "tasks_with_budget": 1}, "Budgets", P.PARTIAL, "2 of 3 tasks have none"),
        ({"results_without_hash": 2}, "Calls with", P.PARTIAL, "2 of 9"),
        ({"exit_conditions": 0}, "Exit condition", P.MISSING, "0 of 1 task"),
        ({"questions": 3, "questions_expired": 1}, "A question", P.PARTIAL, "1 expired"),
        ({"steps_with_manifest": 5}, "Manifest", P.PARTIAL, "5 of 6"),
        ({"rebuilt_equal": 2}, "Requests rebuilt", P.PARTIAL, "1 differ"),
        ({"rebuilt": 0, "rebuilt_equal": 0, "not_rebuilt": "other form"}, "Requests rebuilt", P.MISSING, "other form"),
        ({"calls_without_usage": 6}, "The provider's own", P.MISSING, "cannot be told"),
        ({"calls_without_usage": 1}, "The provider's own", P.PARTIAL, "5 of 6"),
        ({"models": 2, "calibrated_models": 1}, "Token estimates", P.PARTIAL, "1 of 2 models"),
        ({"models": 1, "calibrated_models": 1}, "Token estimates", P.PRESENT, "1 of 1 model in use"),
        ({"tools": ToolsFacts(mcp_servers=1, mcp_unpinned=2)}, "Pinned", P.PARTIAL, "2 definitions withheld"),
    ],
)  # fmt: skip
def test_each_fact_changes_what_is_said(changed: dict[str, object], name: str, presence: Presence, said: str) -> None:
    found = item(audit(replace(WELL, **changed)), name)  # type: ignore[arg-type]
    assert (found.presence, said in found.why) == (presence, True), found.why


def test_a_detector_that_is_off_or_only_watches_is_told_apart() -> None:
    def loop(acts: int, watches: int) -> Item:
        tools = ToolsFacts(versions=2, detectors=(("loop", acts, watches),))
        return item(audit(replace(WELL, tools=tools, incidents={"loop": 3})), "Loop detector")

    assert (loop(2, 0).presence, loop(2, 0).why) == (P.PRESENT, "on in 2 profile versions; 3 incidents")
    assert (loop(1, 1).presence, loop(1, 1).why) == (
        P.PARTIAL,
        "on in 1 of 2 profile versions, only watching in 1, off in 0",
    )
    assert (loop(0, 0).presence, loop(0, 0).why) == (P.MISSING, "off in 2 of 2 profile versions")


@pytest.mark.parametrize(
    ("settings", "kind", "found", "followed"),
    [
        ({}, IncidentKind.LOOP, True, True),
        ({"no_action": 0, "plan_only": 0}, IncidentKind.PARALYSIS, True, True),
        ({"no_action": 0, "plan_only": 0, "exit_out_of_reach": 0}, IncidentKind.PARALYSIS, False, True),
        ({"claims": "off"}, IncidentKind.FALSE_CLAIM, False, True),
        ({"claims": "off"}, IncidentKind.LOST_WORK, True, True),
        ({"observe_only": True}, IncidentKind.LOOP, True, False),
        ({"ladder": {"nudges": 0, "escalate_after": 0}}, IncidentKind.LOOP, True, False),
        ({"ladder": {"nudges": 0}}, IncidentKind.LOOP, True, True),
    ],
)
def test_a_profiles_numbers_say_what_is_found_and_whether_anything_follows(
    settings: dict[str, object], kind: IncidentKind, found: bool, followed: bool
) -> None:
    detection = detection_of(settings)
    assert (finds(detection, kind), acts(detection)) == (found, followed)


def test_every_threshold_belongs_to_a_kind() -> None:
    everything = detection_of(dict.fromkeys(NAMES, 0) | {"claims": "off"})
    assert {kind for kind in IncidentKind if finds(everything, kind)} == {
        IncidentKind.TRUNCATION,
        IncidentKind.CONTEXT_FULL,
        IncidentKind.HOLLOW_RESULT,
        IncidentKind.UNKNOWN_OUTCOME,
        IncidentKind.LOST_WORK,
        IncidentKind.TOOL_CHANGED,
    }
    for name in NAMES:
        alone = detection_of({other: 0 for other in NAMES if other != name})
        assert sum(finds(alone, kind) for kind in IncidentKind) == 8, name


def test_tools_that_go_round_the_gate_are_named() -> None:
    tools = ToolsFacts(versions=1, open_commands=("Deploy v2",), without_output_rule=("deploy",))
    made = audit(replace(WELL, tools=tools, open_networks=1))
    assert "Deploy v2 reach the network" in item(made, "Tools that go through").why
    assert "an empty output of deploy passes for success" in item(made, "Named results").why
    assert item(made, "Approval of").presence is P.PARTIAL


def test_incidents_are_counted_to_their_rows_and_linked() -> None:
    made = audit(replace(WELL, incidents={IncidentKind.LOOP.value: 2, IncidentKind.FALSE_CLAIM.value: 1}))
    by_mode = {row.value: row for row in made.modes}
    assert (by_mode["loop"].incidents, by_mode["bad_call"].incidents, by_mode["quota"].incidents) == (2, 1, 0)
    assert dict(by_mode["loop"].proof.of) == {"mode": "loop", "task": 7}
    by_cluster = {row.value: row for row in made.clusters}
    assert (by_cluster["planning"].incidents, by_cluster["measurement"].incidents) == (2, 1)
