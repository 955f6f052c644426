"""read_file, write_file, edit_file, list_files, search_files: evidence with every refusal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from workspaces.domain.results import ResultClass as R
from workspaces.sandboxes.base import Sandbox
from workspaces.tools.base import ToolResult

Call = Callable[..., ToolResult]

SOURCE = "def f(x):\n    return x + 1\n\n\ndef g(y):\n    return y + 1\n"


class TestReading:
    def test_a_file_comes_as_it_is(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("src/a.py", SOURCE.encode())
        found = call("read_file", path="/workspace/src/a.py")
        assert found.content == SOURCE.rstrip("\n")
        assert found.result_class is R.OK

    def test_a_part_says_where_to_go_on(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("n", b"".join(b"%d\n" % number for number in range(1, 101)))
        found = call("read_file", path="n", offset=10, limit=3)
        assert found.content == "[lines 10 to 12 of 100; go on with offset=13]\n10\n11\n12"
        beyond = call("read_file", path="n", offset=101)
        assert beyond.result_class is R.ERROR
        assert "100 lines" in beyond.content

    def test_all_of_a_long_file_is_reached_part_by_part(self, call: Call, sandbox: Sandbox) -> None:
        lines = [f"line {number} {'x' * (number % 90)}" for number in range(1, 2001)]
        sandbox.write("long.txt", "\n".join(lines).encode())
        seen: list[str] = []
        while len(seen) < len(lines):
            part = call("read_file", path="long.txt", offset=len(seen) + 1)
            assert len(part.content) <= 16_000
            seen += part.content.split("\n")[1:]
        assert seen == lines

    def test_one_endless_line_is_shown_in_part_and_said_so(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("one.json", b"[" + b"1," * 1_500_000 + b"1]")
        found = call("read_file", path="one.json")
        assert "line 1 has 3000003 characters" in found.content
        assert len(found.content) <= 16_000

    def test_an_empty_file_is_named_empty(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("empty", b"")
        found = call("read_file", path="empty")
        assert found.result_class is R.EMPTY
        assert found.content.startswith("[result: empty - ")

    def test_a_binary_file_is_described_and_not_shown(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("image", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)
        found = call("read_file", path="image")
        assert found.result_class is R.ERROR
        assert "10248 bytes, begins 89 50 4e 47" in found.content

    def test_text_that_is_not_utf8_is_marked_as_damaged(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("latin", "Größe: fünf Meter, ungefähr\n".encode("latin-1"))
        found = call("read_file", path="latin")
        assert found.content.startswith("[not UTF-8")
        assert "Gr�" in found.content

    def test_a_missing_file_leads_to_the_one_that_is_there(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("src/pkg/config.py", b"x")
        found = call("read_file", path="config.py")
        assert found.result_class is R.ERROR
        assert "Nearest: src/pkg/config.py" in found.content

    @pytest.mark.parametrize(
        "path", ["../etc/passwd", "/etc/passwd", "a/../../b", "a\x00b", "a\ud800", "/workspacex/a"]
    )
    def test_paths_that_leave_are_refused(self, call: Call, path: str) -> None:
        for tool, more in (("read_file", {}), ("write_file", {"content": "x"}), ("list_files", {})):
            assert call(tool, path=path, **more).result_class is R.ERROR

    def test_a_link_out_of_the_workspace_is_not_followed(self, call: Call) -> None:
        assert call("shell", command="ln -s /etc/passwd pw; ln -s /etc etc").result_class is R.OK
        for tool, arguments in (
            ("read_file", {"path": "pw"}),
            ("read_file", {"path": "etc/passwd"}),
            ("write_file", {"path": "etc/new", "content": "x"}),
            ("edit_file", {"path": "pw", "old": "root", "new": "x"}),
            ("list_files", {"path": "etc"}),
        ):
            found = call(tool, **arguments)
            assert found.result_class is R.ERROR, tool
            assert "root:" not in found.content


class TestWriting:
    def test_a_new_file_and_its_folders(self, call: Call, sandbox: Sandbox) -> None:
        found = call("write_file", path="a/b/c.txt", content="one\ntwo\n")
        assert found.content == "Created a/b/c.txt: 2 lines, 8 bytes."
        assert sandbox.read("a/b/c.txt") == b"one\ntwo\n"

    def test_writing_over_a_file_shows_the_desk_what_changed(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.txt", b"one\ntwo\n")
        found = call("write_file", path="a.txt", content="one\n2\n")
        assert found.content.startswith("Overwrote a.txt")
        assert found.data["diff"] == "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        assert found.data["created"] is False

    def test_the_same_content_again_is_said_to_be_the_same(self, call: Call) -> None:
        call("write_file", path="a.txt", content="x")
        assert "already had exactly this content" in call("write_file", path="a.txt", content="x").content

    def test_half_a_surrogate_pair_is_refused_and_the_file_stays(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.txt", b"old")
        found = call("write_file", path="a.txt", content="bad \ud83d")
        assert found.result_class is R.ERROR
        assert "surrogate" in found.content
        assert sandbox.read("a.txt") == b"old"

    def test_a_folder_is_not_written_over(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("d/x", b"1")
        assert call("write_file", path="d", content="x").result_class is R.ERROR

    def test_an_executable_stays_executable(self, call: Call) -> None:
        call("shell", command="printf '#!/bin/sh\\necho one\\n' > run; chmod +x run")
        call("write_file", path="run", content="#!/bin/sh\necho two\n")
        call("edit_file", path="run", old="two", new="three")
        assert "three" in call("shell", command="./run").content


class TestEditing:
    def test_an_exact_text_is_replaced_and_the_diff_shown(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.py", SOURCE.encode())
        found = call("edit_file", path="a.py", old="return x + 1", new="return x + 2")
        assert found.result_class is R.OK
        assert "-    return x + 1\n+    return x + 2\n" in found.content
        assert found.data["diff"] in found.content
        assert sandbox.read("a.py").decode() == SOURCE.replace("x + 1", "x + 2")

    def test_a_text_that_is_there_twice_is_refused_with_its_lines(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.py", SOURCE.encode())
        found = call("edit_file", path="a.py", old="+ 1", new="+ 2")
        assert found.result_class is R.ERROR
        assert "2 times, not 1 (lines 2, 6)" in found.content
        assert sandbox.read("a.py") == SOURCE.encode()
        assert call("edit_file", path="a.py", old="+ 1", new="+ 2", count=2).result_class is R.OK
        assert sandbox.read("a.py").count(b"+ 2") == 2

    def test_a_text_that_is_not_there_gets_the_nearest_lines(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.py", SOURCE.encode())
        found = call("edit_file", path="a.py", old="    return y * 1", new="x")
        assert "6:     return y + 1" in found.content
        assert found.data["nearest_lines"][0] == 6

    def test_a_text_that_differs_in_indentation_is_told_so(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.py", SOURCE.encode())
        found = call("edit_file", path="a.py", old="def g(y):\n  return y + 1", new="x")
        assert "differs only in spaces" in found.content
        assert "5: def g(y):\n6:     return y + 1" in found.content

    def test_dos_line_ends_are_kept(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("dos.txt", b"one\r\ntwo\r\nthree\r\n")
        assert call("edit_file", path="dos.txt", old="one\ntwo", new="1\n2").result_class is R.OK
        assert sandbox.read("dos.txt") == b"1\r\n2\r\nthree\r\n"

    def test_bytes_that_are_no_utf8_survive_an_edit_elsewhere(self, call: Call, sandbox: Sandbox) -> None:
        raw = "Größe = 5\nLänge = 7\n".encode("latin-1")
        sandbox.write("latin.ini", raw)
        assert call("edit_file", path="latin.ini", old="= 7", new="= 8").result_class is R.OK
        assert sandbox.read("latin.ini") == raw.replace(b"7", b"8")

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"old": "", "new": "x"}, "old is empty"),
            ({"old": "x", "new": "x"}, "the same"),
            ({"old": "\ud800", "new": "x"}, "surrogate"),
        ],
    )
    def test_edits_that_mean_nothing_are_refused(
        self, call: Call, sandbox: Sandbox, arguments: dict[str, Any], reason: str
    ) -> None:
        sandbox.write("a.py", b"x")
        found = call("edit_file", path="a.py", **arguments)
        assert found.result_class is R.ERROR
        assert reason in found.content

    def test_evidence_from_a_long_file_comes_quickly(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("long", b"".join(b"value_%d = compute(%d)\n" % (n, n * 7) for n in range(20_000)))
        started = time.monotonic()
        found = call("edit_file", path="long", old="value_777 = compute(x)\nvalue_778 = z", new="q")
        assert "value_777 = " in found.content
        assert time.monotonic() - started < 5


class TestListing:
    def test_a_folder_and_what_is_below(self, call: Call, sandbox: Sandbox) -> None:
        for path in ("b.txt", "a/x.py", "a/deep/y.py", "node_modules/z.js"):
            sandbox.write(path, b"12345")
        assert call("list_files").content == "a/\nb.txt  5\nnode_modules/  (not entered)"
        assert call("list_files", path="a", recursive=True).content == "a/deep/\na/deep/y.py  5\na/x.py  5"
        everything = call("list_files", recursive=True).content
        assert "a/deep/y.py" in everything
        assert "z.js" not in everything
        assert "z.js" in call("list_files", path="node_modules").content

    def test_an_empty_workspace_is_named_empty(self, call: Call) -> None:
        assert call("list_files").result_class is R.EMPTY

    def test_more_than_is_shown_is_named_truncated(self, call: Call) -> None:
        assert call("shell", command="mkdir m; cd m; seq 2500 | xargs touch").result_class is R.OK
        found = call("list_files", path="m")
        assert found.result_class is R.TRUNCATED
        assert found.data["more"] is True
        assert len(found.content) <= 16_000
        assert found.content.count("\n") == found.data["entries"]

    def test_a_file_is_no_folder(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("a.txt", b"x")
        assert call("list_files", path="a.txt").result_class is R.ERROR


class TestSearching:
    @pytest.fixture(autouse=True)
    def _files(self, sandbox: Sandbox) -> None:
        sandbox.write("src/a.py", SOURCE.encode())
        sandbox.write("src/deep/b.py", b"class B:\n    def h(self): ...\n")
        sandbox.write("readme.md", "def is a word: größer\n".encode())
        sandbox.write(".git/config", b"def of git\n")
        sandbox.write("bin.dat", b"def \x00\x01\x02 x")

    def test_lines_are_found_by_regular_expression(self, call: Call) -> None:
        found = call("search_files", pattern=r"def \w+\(")
        assert found.content.split("\n")[0] == "3 lines in 2 files"
        assert sorted(found.content.split("\n")[1:]) == [
            "src/a.py:1: def f(x):",
            "src/a.py:5: def g(y):",
            "src/deep/b.py:2:     def h(self): ...",
        ]

    @pytest.mark.parametrize(
        ("arguments", "files"),
        [
            ({"glob": "*.md"}, {"readme.md"}),
            ({"glob": "src/*.py"}, {"src/a.py", "src/deep/b.py"}),
            ({"glob": "src/**/b.py"}, {"src/deep/b.py"}),
            ({"path": "src/deep"}, {"src/deep/b.py"}),
            ({"path": "readme.md"}, {"readme.md"}),
            ({"path": ".git"}, {".git/config"}),
            ({"pattern": "DEF", "ignore_case": True, "path": "src/deep"}, {"src/deep/b.py"}),
            ({"pattern": "größ.r$"}, {"readme.md"}),
        ],
    )
    def test_where_to_search_can_be_narrowed(self, call: Call, arguments: dict[str, Any], files: set[str]) -> None:
        found = call("search_files", **{"pattern": "def", **arguments})
        assert {line.split(":")[0] for line in found.content.split("\n")[1:]} == files

    def test_no_match_is_named_empty(self, call: Call) -> None:
        found = call("search_files", pattern="nowhere")
        assert found.result_class is R.EMPTY
        assert call("search_files", pattern="def", glob="x/*.md").result_class is R.EMPTY

    @pytest.mark.parametrize("pattern", ["(unclosed", "[z-a]"])
    def test_a_broken_expression_is_an_error_with_its_reason(self, call: Call, pattern: str) -> None:
        found = call("search_files", pattern=pattern)
        assert found.result_class is R.ERROR
        assert pattern in found.content

    @pytest.mark.parametrize("pattern", ["-rf", "--help", "$(touch owned)", "`touch owned`", "'; touch owned; '"])
    def test_a_pattern_is_never_an_option_or_a_command(self, call: Call, sandbox: Sandbox, pattern: str) -> None:
        assert call("search_files", pattern=pattern).result_class in (R.EMPTY, R.ERROR)
        assert "owned" not in {entry.path for entry in sandbox.list()}

    def test_an_expression_that_would_take_for_ever_ends(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("bomb.txt", b"a" * 200 + b"!\n")
        started = time.monotonic()
        found = call("search_files", pattern=r"^(a+)+$", path="bomb.txt")
        assert found.result_class in (R.ERROR, R.EMPTY, R.TIMEOUT)
        assert time.monotonic() - started < 35

    def test_a_search_never_writes_however_much_it_finds(self, call: Call, sandbox: Sandbox) -> None:
        sandbox.write("many.txt", b"def of something rather long %d\n" % 7 * 50_000)
        found = call("search_files", pattern="def of", context={"output_limit_chars": 2000})
        assert len(found.content) <= 2000
        assert "narrow the search" in found.content
        assert ".agentdesk" not in {entry.path for entry in sandbox.list()}
