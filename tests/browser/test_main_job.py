"""The main job in one piece: pause a running command now, roll back, resume, edit and approve what cannot be undone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.docker]

# Counts up in a file and goes to sleep in a command; told to stop counting, it sends an invoice instead.
SCENARIO = """
replies:
  - text: I write ONE.
    calls: [{name: shell, arguments: {command: "echo one > state.txt; echo kept > kept.txt"}}]
  - cases:
      - when: {message_matches: send the invoice}
        text: No more counting. The invoice.
        calls: [{name: send_invoice, arguments: {customer: ACME, amount: 10}}]
      - text: I write TWO.
        calls: [{name: shell, arguments: {command: "echo two > state.txt; echo more > extra.txt"}}]
  - cases:
      - when: {message_matches: send the invoice}
        calls: [{name: finish, arguments: {summary: "It said {{last_result}}"}}]
      - text: I write THREE.
        calls: [{name: shell, arguments: {command: "echo three > state.txt"}}]
  - text: And now I sleep.
    calls: [{name: shell, arguments: {command: "echo four > state.txt; sleep 60; echo five > state.txt"}}]
"""
QUIET_WITHIN_S = 2.0


def test_paused_in_a_sleeping_command_rolled_back_two_checkpoints_resumed_and_an_edited_call_runs_once(
    product: Product, container_desk: Any, person: Callable[..., Person]
) -> None:
    workspace = container_desk.workspace
    task = container_desk.task(SCENARIO, instruction="Count, until you are told otherwise.")
    olive = person(container_desk.operator["id"])
    olive.allow("oobErrorNoTarget, #checkpoints", because="the panel was left while its news were under way")
    page = olive.open(f"/tasks/{task}/", live=True)

    # --- it runs a command that sleeps for a minute
    olive.until(lambda: running_command(product, task), within_s=60, what="the sleeping command runs")
    page.locator("#latest", has_text="shell").wait_for()
    olive.until(lambda: product.container(workspace).get("State", {}).get("Running"), what="its container runs")
    olive.until(lambda: product.sandbox(workspace).read("state.txt") == b"four\n", what="the command has begun")

    # --- paused now: quiet on the page, in the database and in the engine within two seconds of the click
    clicked, clicked_at = time.monotonic(), datetime.now(UTC)
    page.locator("#control-pause-now").click()
    olive.wait_status("paused", within_s=20)
    seen_s = time.monotonic() - clicked
    state = product.container(workspace)["State"]
    stands = product.task(task)
    asked, frozen, paused = (
        (product.events(task, kind)[0]["at"] - clicked_at).total_seconds()
        for kind in ("task.pausing", "workspace.frozen", "task.paused")
    )
    told = f"asked {asked:.2f} s, frozen {frozen:.2f} s, paused {paused:.2f} s, seen {seen_s:.2f} s after the click"
    print(told)
    assert state["Paused"] is True
    assert stands["status"] == "paused"
    assert stands["lease_until"] is None
    assert max(frozen, paused, seen_s) < QUIET_WITHIN_S, told
    assert product.sandbox(workspace).read("state.txt") == b"four\n"

    # --- rolled back two checkpoints, through the dialog, which asks for a reason
    saved = product.checkpoints(task)
    assert sorted(saved) == [0, 1, 2, 3]
    target = saved[1]
    page.locator('#panel [data-panel="checkpoints"]').click()
    page.locator("#panel tr", has_text=f"#{target}").locator('[title="Roll back to here"]').click()
    dialog = page.locator("#rollback-dialog[open]")
    dialog.wait_for()
    undone = dialog.inner_text()
    assert re.search(r"Steps\s+3\b", undone)
    assert "state.txt" in undone
    assert "extra.txt" in undone
    dialog.locator(".button-danger").click()
    assert dialog.is_visible(), "without a reason nothing is rolled back"
    dialog.locator("#rollback-reason").fill("it was to stop at one")
    dialog.locator(".button-danger").click()
    page.locator("#rollback-dialog[open]").wait_for(state="hidden")
    olive.until(lambda: product.task(task)["disk_restore_id"] is None, what="the files are back")

    # --- the files are back: on the disk, and in the files panel
    sandbox = product.sandbox(workspace)
    assert sandbox.read("state.txt") == b"one\n"
    assert sorted(entry.path for entry in sandbox.list()) == ["kept.txt", "state.txt"]
    page.locator('#panel [data-panel="files"]').click()
    page.locator("#files .file-name", has_text="state.txt").wait_for()
    names = page.locator("#files .file-name").all_inner_texts()
    assert [name.strip() for name in names] == ["kept.txt", "state.txt"]
    page.locator("#files .file-name a", has_text="state.txt").click()
    page.locator("#file-dialog[open]").wait_for()
    assert page.locator("#file-dialog .file-text").inner_text().strip() == "one"
    page.keyboard.press("Escape")
    page.locator("#file-dialog[open]").wait_for(state="hidden")

    # --- the conversation is back too: what came later is left on the old branch, marked so and readable
    page.locator("#trace .event", has_text="rolled back").first.wait_for()
    assert page.locator("#trace .event-abandoned", has_text="I write THREE.").count() == 1
    assert page.locator("#trace .event-abandoned", has_text="I write ONE.").count() == 0
    assert conversation(product, task) == ["Count, until you are told otherwise.", "I write ONE.", ""]

    # --- told what to do instead, and resumed
    page.locator("#control-message").click()
    page.locator("#message-dialog textarea").fill("Stop counting and send the invoice.")
    page.locator("#message-dialog button[type=submit]").click()
    page.locator("#message-dialog[open]").wait_for(state="hidden")
    page.locator("#control-resume").click()

    # --- the call that cannot be undone is held; edited and approved, it runs once, as edited
    card = page.locator("#task-escalations .card-urgent")
    card.wait_for(timeout=30_000)
    olive.wait_status("waiting", within_s=5)
    assert not [entry.path for entry in product.sandbox(workspace).list() if entry.path == "sent.jsonl"]
    card.locator("summary", has_text="Edit").click()
    arguments = card.locator("textarea[name=arguments]")
    assert json.loads(arguments.input_value()) == {"customer": "ACME", "amount": 10}
    arguments.fill('{"customer": "ACME", "amount": 7}')
    card.locator("details[open] button[type=submit]").click()
    olive.wait_status("succeeded")
    sent = product.sandbox(workspace).read("sent.jsonl").decode().split("\n")
    assert [json.loads(line) for line in sent if line] == [{"customer": "ACME", "amount": 7}]
    assert product.sandbox(workspace).read("state.txt") == b"one\n"
    assert len(product.events(task, "escalation.answered")) == 1

    # --- all of it was seen live, each event once
    olive.until(lambda: len(olive.shown_seqs()) >= len(product.seqs(task)), what="the trace is whole")
    assert olive.shown_seqs() == product.seqs(task)[::-1]


def running_command(product: Product, task: int) -> bool:
    """The fourth step's command."""
    return bool(
        product.rows(
            "select 1 from workspaces_toolcall c join workspaces_step s on s.id = c.step_id"
            " where c.task_id = %s and c.status = 'running' and s.number = 4",
            task,
        )
    )


def conversation(product: Product, task: int) -> list[str]:
    """What the model is sent now: the current branch up to where it began, and its own."""
    rows = product.rows(
        "select m.content, m.role from workspaces_message m join workspaces_task t on t.id = m.task_id"
        " join workspaces_branch b on b.id = t.branch_id"
        " where t.id = %s and (m.branch_id = b.id or (m.branch_id = b.parent_id and m.seq <= b.parent_seq))"
        " order by m.seq, m.part",
        task,
    )
    return [row["content"] if row["role"] != "tool" else "" for row in rows]
