"""Names that do not exist lead to the ones that do."""

from __future__ import annotations

import pytest

from workspaces.domain.names import nearest_names

TOOLS = ["read_file", "write_file", "edit_file", "list_files", "search_files", "shell", "note", "ask_operator",
         "finish", "send_invoice"]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("readFile", "read_file"),
        ("READ-FILE", "read_file"),
        ("functions.read_file", "read_file"),
        ("reed_file", "read_file"),
        ("bash", "shell"),
        ("execute_command", "shell"),
        ("create_file", "write_file"),
        ("str_replace", "edit_file"),
        ("ls", "list_files"),
        ("grep", "search_files"),
        ("submit", "finish"),
        ("ask_user", "ask_operator"),
        ("sendInvoices", "send_invoice"),
        ("invoice", "send_invoice"),
    ],
)
def test_the_likeliest_real_name_comes_first(asked: str, meant: str) -> None:
    assert nearest_names(asked, TOOLS)[0] == meant


@pytest.mark.parametrize("asked", ["", "   ", "🦆", "qqqqqqqq", "x" * 100_000])
def test_what_is_like_nothing_leads_nowhere(asked: str) -> None:
    assert nearest_names(asked, TOOLS) == []


def test_only_names_that_are_there_are_suggested() -> None:
    assert nearest_names("bash", ["read_file"]) == []
    assert len(nearest_names("file", TOOLS)) <= 3
