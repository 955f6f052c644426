"""A new task with attachments; a refused form keeps what was typed."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.people import Person
from tests.browser.product import Product

pytestmark = [pytest.mark.browser, pytest.mark.stack]

READS = """
replies:
  - calls: [{name: shell, arguments: {command: "cat project/readme.md"}}]
  - calls: [{name: finish, arguments: {summary: "It says: {{last_result}}"}}]
"""


def packed(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_a_task_is_started_with_a_zip_that_the_agent_then_reads(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=READS)
    olive = person(desk.operator["id"])
    page = olive.open("/tasks/new/")
    page.locator("#id_workspace").select_option(str(desk.workspace["id"]))
    page.locator("#id_profile").select_option(str(version))
    page.locator("#id_instruction").fill("Read the readme.\nSay what it says.")
    archive = {"name": "project.zip", "mimeType": "application/zip"}
    content = packed(**{"project/readme.md": "straight from the archive\n"})
    page.locator("#id_archive").set_input_files({**archive, "buffer": content})  # type: ignore[list-item,misc]
    page.get_by_role("button", name="Start the task").click()
    page.wait_for_url(re.compile(r"/tasks/\d+/$"))
    olive.wait_status("succeeded", within_s=60)
    assert "straight from the archive" in page.locator("#task-result").inner_text()


def test_a_refused_member_and_a_refused_hold_keep_what_was_typed(
    product: Product, desk: Any, person: Callable[..., Person]
) -> None:
    owner = person(desk.owner["id"])
    owner.allow("409", because="the name is nobody's, and the hold stands already")
    page = owner.open(f"/workspaces/{desk.workspace['id']}/")
    page.locator("#new-member").fill("nobody-at-all")
    page.locator("#add-member button").click()
    page.locator("#notice .notice-error", has_text="Nobody here signs in").wait_for()
    assert page.locator("#new-member").input_value() == "nobody-at-all"

    late = person(desk.owner["id"])
    late.allow("409", because="the hold stands already")
    late.open(f"/workspaces/{desk.workspace['id']}/").locator("[data-open='#hold-workspace']").click()
    late.page.locator("#hold-workspace [name=reason]").fill("the second one")
    page.locator("[data-open='#hold-workspace']").click()
    page.locator("#hold-workspace [name=reason]").fill("the first one")
    page.locator("#hold-workspace [type=submit]").click()
    page.locator(".hold", has_text="the first one").wait_for()
    late.page.locator("#hold-workspace [type=submit]").click()
    late.page.locator("#hold-workspace .notice-error", has_text="stands already").wait_for()
    assert late.page.locator("#hold-workspace [name=reason]").input_value() == "the second one"


def test_a_refused_form_keeps_what_was_typed(product: Product, desk: Any, person: Callable[..., Person]) -> None:
    version = product.do("profile", owner=desk.owner["id"], scenario=READS)
    olive = person(desk.operator["id"])
    olive.allow("400|409|422", because="the form is refused")
    page = olive.open("/tasks/new/")
    page.locator("#id_workspace").select_option(str(desk.workspace["id"]))
    page.locator("#id_profile").select_option(str(version))
    page.locator("#id_instruction").fill("A long instruction that nobody wants to type twice.")
    page.locator("#id_git_url").fill("file:///etc/passwd")
    page.get_by_role("button", name="Start the task").click()
    page.locator("#id_git_url[aria-invalid]").wait_for()
    assert page.locator("#id_instruction").input_value() == "A long instruction that nobody wants to type twice."
    assert page.locator("#id_git_url").input_value() == "file:///etc/passwd"
    assert page.locator("#id_workspace").input_value() == str(desk.workspace["id"])
    assert not product.rows("select 1 from workspaces_task where workspace_id = %s", desk.workspace["id"])
