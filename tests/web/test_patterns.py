"""Recurrence and compounding: counted from real rows, with the verdict and the count behind each point."""

from __future__ import annotations

import textwrap
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from tests.harness import scripted_profile
from tests.web.pages import page, words
from tests.web.people import Desk
from tests.web.troubled import LOOPING, QUIET, looped, reported
from workspaces.actions.profiles import add_version
from workspaces.domain.compounding import Bin
from workspaces.domain.recurrence import VersionRate
from workspaces.models import ProfileVersion, Task, User
from workspaces.queries.compounding import compounding_of
from workspaces.queries.recurrence import recurrence_of
from workspaces.web.rate_charts import compounding_figure, recurrence_figure

pytestmark = pytest.mark.django_db(transaction=True)

CAUSE = "loop/same_call_same_result/read_file/error"


def copies(task: Task, count: int, *, met: int = 0, **fields: Any) -> list[Task]:
    """Rows like that task's, for what only counts; `met` of them have its incident."""
    columns = [field.column for field in Task._meta.concrete_fields if field.column != "id"]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO workspaces_task ({', '.join(columns)}) SELECT {', '.join(columns)}"
            " FROM workspaces_task, generate_series(1, %s) WHERE id = %s RETURNING id",
            [count, task.pk],
        )
        ids = sorted(pk for (pk,) in cursor.fetchall())
        cursor.execute(
            "INSERT INTO workspaces_incident (task_id, branch_id, kind, severity, pattern, cause, fingerprint, words,"
            " evidence, first_seq, last_seq, count, rung, responses, nudges, state, opened_at, grew_at, resolution)"
            " SELECT unnest(%s::bigint[]), %s, 'loop', 'error', 'p', %s, 'f', 'w', '[{}]', 1, 1, 1, 'noted', '[]', 0,"
            " 'open', now(), now(), ''",
            [ids[:met], task.branch_id, CAUSE],
        )
    Task.objects.filter(pk__in=ids).update(**({"title": "copy"} | fields))
    return list(Task.objects.filter(pk__in=ids))


def next_version(version: ProfileVersion, actor: User, **changed: Any) -> ProfileVersion:
    kept = ("provider", "model", "tools", "local_allowed", "system_prompt", "max_steps", "detectors")
    settings = {name: getattr(version, name) for name in kept}
    settings["provider_options"] = {"scenario_text": textwrap.dedent(LOOPING)}
    return add_version(version.profile, actor=actor, **(settings | changed))


@pytest.fixture
def over_versions(desk: Desk) -> ProfileVersion:
    """Three changes of the prompt; in each version 5 of 10 tasks met the same cause."""
    version = scripted_profile(desk.owner, LOOPING, system_prompt="Be careful.", detectors=QUIET)
    for prompt in ("", "Be careful, please.", "Never read a file twice.", "NEVER read a file twice."):
        if prompt:
            version = next_version(version, desk.owner, system_prompt=prompt)
        copies(looped(desk, version), 9, met=5)
    return version


def test_three_prompt_changes_at_the_same_rate_are_called_structural(
    desk: Desk, signed_in: Any, over_versions: ProfileVersion
) -> None:
    client = signed_in(desk.viewer)
    seen = page(client.get("/incidents/recurrence/"))
    assert seen.text("#verdict") == "three prompt changes, same rate: structural"
    rows = [words(row) for row in seen.all("#edition-table tbody tr")]
    assert len(rows) == 4
    assert rows[0].startswith("v1 10 5 50 % 24 %–76 %")
    assert "prompt system prompt: Be careful. → Be careful, please." in rows[1]
    figure = client.get(str(seen.one("#recurrence-chart")["data-figure"])).json()
    assert figure["data"][0]["text"] == ["5 of 10"] * 4
    assert page(signed_in(desk.outsider).get("/incidents/recurrence/")).one(".empty")
    assert signed_in(desk.outsider).get(str(seen.one("#recurrence-chart")["data-figure"])).status_code == 404


def test_a_fall_names_the_version_and_what_changed(desk: Desk, signed_in: Any, over_versions: ProfileVersion) -> None:
    version = next_version(over_versions, desk.owner, max_steps=7)
    copies(looped(desk, version), 19)
    (group,) = recurrence_of(desk.viewer).groups
    assert group.verdict.words.startswith("fell after the change of limits in v5: 20 of 40 → 0 of 20 tasks")
    seen = page(signed_in(desk.viewer).get(f"/incidents/recurrence/?profile={group.profile_id}&cause={CAUSE}"))
    assert "max steps: 100 → 7" in seen.text("#edition-table")
    assert seen.one(".causes tr[aria-current]")


def test_a_few_tasks_are_said_to_be_too_few(desk: Desk, signed_in: Any) -> None:
    version = scripted_profile(desk.owner, LOOPING, detectors=QUIET)
    reported(looped(desk, version))
    looped(desk, next_version(version, desk.owner, system_prompt="Mind the gap."))
    seen = page(signed_in(desk.viewer).get("/incidents/recurrence/"))
    assert "too few tasks to tell (n = 2 tasks; v1: 1 of 1, v2: 0 of 1)" in seen.text("#verdict")


def test_the_period_and_an_unknown_cause_are_told(desk: Desk, signed_in: Any, over_versions: ProfileVersion) -> None:
    Task.objects.update(created_at=Task.objects.earliest("pk").created_at - timedelta(days=3))
    client = signed_in(desk.viewer)
    assert page(client.get("/incidents/recurrence/?period=day")).one(".empty")
    assert page(client.get("/incidents/recurrence/?period=week")).one("#verdict")
    assert "loop/none" in page(client.get("/incidents/recurrence/?cause=loop/none")).text(".notice-inline")
    assert client.get("/incidents/recurrence.json").status_code == 404


def test_compounding_counts_ended_tasks_by_length_and_company(desk: Desk, signed_in: Any) -> None:
    task = looped(desk)
    copies(task, 4, steps_taken=40, status="failed")
    copies(task, 2, steps_taken=40, status="cancelled")
    found = compounding_of(desk.viewer)
    assert [(each.label, each.tasks, each.failed) for each in found.steps] == [("1–5", 1, 0), ("21–50", 4, 4)]
    assert [(each.label, each.tasks) for each in found.agents] == [("6–10", 5)], (
        "those that were cancelled were there too"
    )
    client = signed_in(desk.viewer)
    seen = page(client.get("/incidents/compounding/"))
    assert "From the 5 tasks" in seen.text(".lede")
    assert words(seen.all(".cards tbody tr")[1]).startswith("21–50 4 4 100 %")
    figure = client.get("/incidents/compounding/steps.json").json()
    assert figure["data"][0]["text"] == ["n=1", "n=4"]
    assert client.get("/incidents/compounding/agents.json").json()["data"][0]["x"] == ["6–10"]
    assert client.get("/incidents/compounding/other.json").status_code == 404
    assert page(client.get("/incidents/compounding/?profile=999999")).one(".empty")
    assert page(signed_in(desk.outsider).get("/incidents/compounding/")).one(".empty")


def test_figures_are_made_of_rows_alone() -> None:
    figure = recurrence_figure([VersionRate(1, 10, 5), VersionRate(2, 0, 0), VersionRate(3, 4, 4, changed=("model",))])
    (trace,) = figure["data"]
    assert (trace["x"], trace["y"], trace["text"]) == (["v1", "v3"], [0.5, 1.0], ["5 of 10", "4 of 4"])
    assert trace["error_y"]["array"][1] == 0
    assert figure["layout"]["xaxis"]["ticktext"] == ["v1", "v3<br>model"]
    unpriced = compounding_figure([Bin("1–5", 3, 1, 0, None, None)], "steps")
    assert [trace["name"] for trace in unpriced["data"]] == ["share, with its 95 % interval"]
