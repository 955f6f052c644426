"""A real model, small and weak, creates and edits a file through real tool calls, and a browser watches it live.

Excluded from `make test`; `make test-model` brings the model and runs these. AGENTDESK_MODEL_RUNS=5 repeats the work:
the first run is greedy, each further one is sampled with a seed of its own, so that a success rate can be told.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.people import Person, chromium_path, launch
from tests.browser.product import Product
from tests.harness import eventually
from tests.model.server import LocalModel

pytestmark = [pytest.mark.model, pytest.mark.stack, pytest.mark.timeout(1800)]

RUNS = range(int(os.environ.get("AGENTDESK_MODEL_RUNS", "1")))
WORK_WITHIN_S = 1500  # a busy machine reads the first prompt alone for minutes
BOTH_FORMS = [pytest.param(True, id="calls-in-the-text"), pytest.param(False, id="calls-of-the-api")]


@pytest.mark.parametrize("model", BOTH_FORMS, indirect=True)
@pytest.mark.parametrize("run", RUNS)
def test_a_file_is_made_and_edited_by_a_real_models_calls(
    run: int, model: LocalModel, product: Product, give_task: Callable[..., dict[str, Any]]
) -> None:
    task = give_task(temperature=0.7 if run else 0.0, seed=run + 1)
    eventually(lambda: at_rest(product, task["id"]), within_s=WORK_WITHIN_S, what="the task rests")
    report(product, task["id"])
    check(product, task, in_text=model.plain)


@pytest.mark.browser
@pytest.mark.parametrize("model", BOTH_FORMS[:1], indirect=True)
def test_the_work_of_a_real_model_is_seen_live_in_the_browser(
    model: LocalModel, product: Product, give_task: Callable[..., dict[str, Any]]
) -> None:
    assert chromium_path(), "no Chromium"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        try:
            task = give_task(hold=True)
            watcher = Person(browser, product, task["owner"])
            page = watcher.open(f"/tasks/{task['id']}/", live=True)
            watcher.wait_status("paused")
            rows_before = watcher.shown_seqs()
            page.locator("#control-resume").click()

            # On the page that was opened once: the reply while it is written, and the trace while it grows.
            said = page.locator("#latest .latest-call pre")
            streamed: list[str] = []
            lengths = [len(rows_before)]

            def watch() -> bool:
                text = "".join(said.all_inner_texts()).strip()
                if text and text not in streamed:
                    streamed.append(text)
                if (length := len(watcher.shown_seqs())) != lengths[-1]:
                    lengths.append(length)
                return watcher.status() in ("succeeded", "failed", "waiting")

            watcher.until(watch, within_s=WORK_WITHIN_S, what="the task rests")
            grew = [later for sooner, later in itertools.pairwise(streamed) if later.startswith(sooner)]
            print(f"\nseen: {len(streamed)} states of the replies, {len(grew)} times longer; rows {lengths}")
            assert len(grew) > 3, streamed
            assert len(lengths) > 3, lengths
            assert lengths == sorted(lengths), lengths
            assert watcher.status() == "succeeded"
            watcher.until(
                lambda: watcher.shown_seqs() == product.seqs(task["id"])[::-1], what="every event is on the page, once"
            )
            assert page.locator("#trace", has_text="edit_file").count() == 1
            complaints = watcher.complaints
            watcher.close()
        finally:
            browser.close()
    report(product, task["id"])
    check(product, task, in_text=True)
    assert not complaints


def at_rest(product: Product, task_id: int) -> bool:
    """Ended, or waiting for a person: a weak model may end there as well."""
    task = product.task(task_id)
    return bool(task["finished_at"]) or task["waiting_for"] == "operator"


def check(product: Product, task: dict[str, Any], *, in_text: bool) -> None:
    """What is on the disk, and that the records tell how it came there."""
    row, number = product.task(task["id"]), task["id"]
    calls = product.rows("select * from workspaces_toolcall where task_id = %s order by id", number)
    told = [(call["name"], call["arguments"], call["result_class"]) for call in calls]
    assert row["status"] == "succeeded", told
    assert product.sandbox(task["workspace"]).read("hello.txt").decode().strip() == "hello world", told

    # Real calls: each judged, run by its tool, and finished.
    done = [call for call in calls if call["verdict"] == "allow" and call["result_class"] == "ok"]
    names = [call["name"] for call in done]
    assert names.index("write_file") < names.index("edit_file") < names.index("finish"), told
    assert {call["status"] for call in calls} == {"done"}
    assert all(call["started_at"] <= call["finished_at"] for call in done)
    edit = next(call for call in done if call["name"] == "edit_file")
    assert {"-hello", "+hello world"} <= set(edit["result_data"]["diff"].splitlines())

    # A real model: each reply with the server's own count of tokens.
    replies = product.rows("select * from workspaces_modelcall where task_id = %s order by id", number)
    assert {reply["status"] for reply in replies} == {"replied"}
    for reply in replies:
        assert reply["input_tokens"] + reply["cached_input_tokens"] > 100
        assert reply["output_tokens"] > 5
    assert row["output_tokens"] == sum(reply["output_tokens"] for reply in replies)

    # The trace: without a gap, each call started before it finished, and the calls found in the text said to be so.
    events = product.rows("select seq, kind, data from workspaces_event where task_id = %s order by seq", number)
    assert [event["seq"] for event in events] == list(range(1, row["last_seq"] + 1))
    kinds = [event["kind"] for event in events]
    assert kinds[-1] == "task.succeeded" or "task.succeeded" in kinds[-3:]
    ran = [event["data"]["name"] for event in events if event["kind"] == "call.started"]
    assert [name for name in ran if name != "read_file"][:2] == ["write_file", "edit_file"], ran
    corrected = [event for event in events if event["kind"] == "reply.corrected"]
    found = [event for event in corrected if event["data"]["problem"] == "call found in the text"]
    assert len(found) == (len(calls) if in_text else 0)


def report(product: Product, task_id: int) -> None:
    """Figures of one run, shown by `pytest -s`."""
    replies = product.rows("select * from workspaces_modelcall where task_id = %s order by id", task_id)
    calls = product.rows(
        "select name, arguments, verdict, result_class from workspaces_toolcall where task_id = %s order by id", task_id
    )
    ended: list[datetime] = [reply["finished_at"] for reply in replies if reply["finished_at"]]
    took_s = (max(ended) - replies[0]["started_at"]).total_seconds() if ended else 0.0
    written = sum(reply["output_tokens"] or 0 for reply in replies)
    writing_s = sum(
        (reply["finished_at"] - reply["started_at"]).total_seconds() - (reply["first_token_s"] or 0.0)
        for reply in replies
        if reply["finished_at"]
    )
    print(
        f"\n{time.strftime('%H:%M:%S')} task {task_id}: {product.task(task_id)['status']}, {len(replies)} replies in "
        f"{took_s:.1f} s, {written} tokens written at {written / max(writing_s, 0.001):.1f}/s, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for call in calls:
        print(f"    {call['name']} {call['arguments']} -> {call['verdict']} {call['result_class']}")
    for reply in replies:
        print(f"    said {reply['text']!r} ({reply['finish_reason']}, first token after {reply['first_token_s']} s)")
