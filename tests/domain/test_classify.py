"""Results are named for what they are."""

from __future__ import annotations

import pytest

from workspaces.domain.classify import Ended, named, of_command, of_http, of_search
from workspaces.domain.results import ResultClass as R


@pytest.mark.parametrize(
    ("ended", "required", "expected", "why"),
    [
        (Ended(0, b"out"), False, R.OK, ""),
        (Ended(0), False, R.OK, ""),
        (Ended(0, b"out", b"warning: old\n"), False, R.OK, ""),
        (Ended(0, b"Traceback (most recent call last):"), False, R.OK, ""),
        (Ended(0, b"0", b"x\nTraceback (most recent call last):\n  File"), False, R.AMBIGUOUS, "Traceback"),
        (Ended(0, b"", b"bash: line 1: jq: command not found\n"), False, R.AMBIGUOUS, "jq: command not found"),
        (Ended(0, b"", b"sh: 1: jq: not found\n"), True, R.EMPTY, "only to standard error"),
        (Ended(1, b"", b"sh: 1: jq: not found\n"), False, R.ERROR, "exit code 1"),
        (Ended(0, b" \n"), True, R.EMPTY, "printed nothing"),
        (Ended(0, b"{}\n"), True, R.EMPTY, "empty value ({})"),
        (Ended(0, b"", b"warning"), True, R.EMPTY, "only to standard error"),
        (Ended(0, b"0"), True, R.OK, ""),
        (Ended(3, b"out"), True, R.ERROR, "exit code 3"),
        (Ended(127), False, R.ERROR, "not found"),
        (Ended(137), False, R.ERROR, "memory"),
        (Ended(139), False, R.ERROR, "SIGSEGV"),
        (Ended(255), False, R.ERROR, "exit code 255"),
        (Ended(0, b"x", truncated=True), False, R.TRUNCATED, "lost"),
        (Ended(1, b"x", truncated=True), False, R.ERROR, "lost"),
        (Ended(None, b"x", timed_out=True, timeout_s=2), False, R.TIMEOUT, "after 2 s"),
        (Ended(None), False, R.AMBIGUOUS, "cannot be told"),
    ],
)
def test_a_commands_end_has_a_class_and_a_reason(ended: Ended, required: bool, expected: R, why: str) -> None:
    result_class, said = of_command(ended, output_required=required)
    assert result_class is expected
    assert why in said
    assert bool(said) is (expected is not R.OK)


def test_a_search_without_a_match_is_an_answer_and_not_a_failure() -> None:
    assert of_search(Ended(1))[0] is R.EMPTY
    assert of_search(Ended(1, stderr=b"sh: grep: Killed"))[0] is R.ERROR
    assert of_search(Ended(2, b"a:1:x", b"grep: b: Permission denied"))[0] is R.OK
    assert of_search(Ended(None, timed_out=True))[0] is R.TIMEOUT


def test_the_model_is_told_every_class_but_success() -> None:
    assert named(R.EMPTY, "the command succeeded and printed nothing") == (
        "[result: empty - the command succeeded and printed nothing]"
    )
    assert named(R.OK, "") == ""
    assert all(named(one, "") == f"[result: {one.value}]" for one in R if one is not R.OK)


JSON = {"Content-Type": "application/json; charset=utf-8"}
HTML = {"content-type": "text/html"}


@pytest.mark.parametrize(
    ("method", "status", "headers", "body", "asked", "expected", "why"),
    [
        ("GET", 200, JSON, b'{"id": 7}', "", R.OK, ""),
        ("GET", 200, JSON, b"[1]", "", R.OK, ""),
        ("GET", 200, JSON, b"0", "", R.OK, ""),
        ("GET", 200, {}, b"plain words", "", R.OK, ""),
        # a 2xx that says nothing
        ("GET", 200, JSON, b"{}", "", R.EMPTY, "empty value ({})"),
        ("GET", 200, JSON, b" [] \n", "", R.EMPTY, "empty value ([])"),
        ("GET", 200, JSON, b"null", "", R.EMPTY, "null"),
        ("GET", 200, {}, b"", "", R.EMPTY, "empty body"),
        ("GET", 200, {}, b" \r\n\t", "", R.EMPTY, "empty body"),
        ("GET", 200, JSON, b"\xef\xbb\xbf{}", "", R.EMPTY, "empty value"),
        ("POST", 200, JSON, b"{}", "", R.EMPTY, "empty value"),
        ("GET", 200, JSON, b'{"data": null, "items": []}', "", R.EMPTY, "every field"),
        ("GET", 200, JSON, b'{"items": [], "total": 0}', "", R.OK, ""),
        # by method
        ("GET", 204, {}, b"", "", R.EMPTY, "204 No Content"),
        ("DELETE", 204, {}, b"", "", R.OK, ""),
        ("post", 204, {}, b"", "", R.OK, ""),
        ("HEAD", 200, {}, b"", "", R.OK, ""),
        ("POST", 201, {"Location": "/orders/7"}, b"", "", R.OK, ""),
        ("POST", 201, {}, b"", "", R.EMPTY, "empty body"),
        ("POST", 202, {}, b"", "", R.AMBIGUOUS, "not known yet"),
        # pages where an answer was due
        ("GET", 200, HTML, b"<html><title>Docs</title>text</html>", "", R.OK, ""),
        ("GET", 200, HTML, b"<html><title>Error handling in C</title>", "", R.AMBIGUOUS, "the page says"),
        ("GET", 200, HTML, b"<html><title>How we handle errors</title>", "", R.OK, ""),
        ("GET", 200, HTML, b"<html><title> 404 Not Found</title>", "", R.AMBIGUOUS, "404 Not Found"),
        ("GET", 200, HTML, b"<!DOCTYPE html><title>Shop</title>", "application/json", R.AMBIGUOUS, "JSON was due"),
        ("GET", 200, JSON, b"<!doctype HTML><h1>502 Bad Gateway</h1>", "", R.ERROR, "502 Bad Gateway"),
        ("GET", 200, {}, b"<html><h1>Sign in</h1>", "application/json", R.ERROR, "Sign in"),
        ("GET", 200, HTML, b"<html><title>Shop</title>", "text/html, application/json", R.OK, ""),
        # a body that says otherwise than its status
        ("GET", 200, JSON, b"{not json", "", R.AMBIGUOUS, "is not"),
        ("GET", 200, {}, b"{{ a template }}", "", R.OK, ""),
        ("POST", 200, JSON, b'{"ok": false, "error": "no_channel"}', "", R.AMBIGUOUS, "ok: false"),
        ("POST", 200, JSON, b'{"errors": [{"message": "boom"}], "data": null}', "", R.AMBIGUOUS, "boom"),
        ("GET", 200, JSON, b'{"error": null, "id": 1}', "", R.OK, ""),
        # everything else
        ("GET", 301, {"Location": "/login"}, b"", "", R.ERROR, "/login"),
        ("GET", 304, {}, b"", "", R.ERROR, "304 Not Modified"),
        ("GET", 404, JSON, b'{"id": 7}', "", R.ERROR, "404 Not Found"),
        ("GET", 503, HTML, b"", "", R.ERROR, "the server failed"),
        ("GET", 799, {}, b"x", "", R.ERROR, "799"),
        ("GET", 101, {}, b"", "", R.AMBIGUOUS, "no final answer"),
        ("GET", 206, {}, b"part", "", R.TRUNCATED, "part"),
        ("GET", None, {}, b"", "", R.ERROR, "ended before"),
        ("POST", None, {}, b"", "", R.AMBIGUOUS, "cannot be told"),
    ],
)
def test_an_http_answer_has_a_class_and_a_reason(
    method: str, status: int | None, headers: dict[str, str], body: bytes, asked: str, expected: R, why: str
) -> None:
    result_class, said = of_http(status, headers, body, method=method, asked=asked)
    assert result_class is expected, said
    assert why in said
    assert bool(said) is (expected is not R.OK)


def test_a_cut_or_late_http_answer_is_named_as_such() -> None:
    assert of_http(200, JSON, b'{"a": [', truncated=True)[0] is R.TRUNCATED
    assert of_http(500, JSON, b'{"a": [', truncated=True)[0] is R.ERROR
    assert of_http(200, JSON, b"<html><h1>Forbidden</h1>", truncated=True)[0] is R.ERROR
    result_class, why = of_http(None, {}, b"", method="POST", timed_out=True, timeout_s=5)
    assert result_class is R.TIMEOUT
    assert "5 s" in why
    assert "may have done" in why
    assert "may have done" not in of_http(None, {}, b"", timed_out=True, timeout_s=5)[1]


def test_a_huge_hostile_page_is_classified_at_once() -> None:
    page = b"<html>" + b"<title " * 200_000
    assert of_http(200, HTML, page)[0] is R.OK
    assert of_http(200, JSON, b"[" * 1_000_000)[0] is R.AMBIGUOUS
