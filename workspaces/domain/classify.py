"""Names results: what a command's end or an HTTP answer means, and the line in which a model is told so. Pure."""

from __future__ import annotations

import codecs
import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from workspaces.domain.results import ResultClass
from workspaces.domain.text import clip

R = ResultClass

# a required output that is one of these says as little as none
_HOLLOW = (b"", b"null", b"{}", b"[]", b'""', b"None")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. `exit_code` is None when it was killed for its timeout, or nobody knows."""

    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    truncated: bool = False  # bytes of its output were lost
    timeout_s: float = 0.0


Named = tuple[ResultClass, str]

# what a shell and Python write when something went wrong, also where a pipeline hides its exit code
_TROUBLE = re.compile(rb"^Traceback \(most recent call last\):|^[^\n]{1,200}: (?:command )?not found\r?$", re.MULTILINE)
_LOOKED_AT_BYTES = 64 * 1024  # for trouble, for a page's kind and title


def of_command(ended: Ended, *, output_required: bool = False) -> Named:
    """The class of a command's result and why, worst news first.

    `output_required`: the output is the result (a declared tool must answer), so nothing is `empty`.
    """
    lost = "; part of its output was lost, there was more than is kept" if ended.truncated else ""
    if ended.timed_out:
        return (
            R.TIMEOUT,
            f"the command was killed after {ended.timeout_s:g} s and may have done a part of its work{lost}",
        )
    if ended.exit_code is None:
        return R.AMBIGUOUS, "the command ended without an exit code: it cannot be told whether it worked"
    if ended.exit_code != 0:
        return R.ERROR, f"{exit_words(ended.exit_code)}{lost}"
    if ended.truncated:
        return R.TRUNCATED, "the command succeeded; part of its output was lost, there was more than is kept"
    bare = ended.stdout.strip() if len(ended.stdout) <= 4096 else b"much"
    if output_required and bare in _HOLLOW:
        if bare:
            return R.EMPTY, f"the command succeeded and printed an empty value ({bare.decode()})"
        only = " to standard output, only to standard error" if ended.stderr.strip() else ""
        return R.EMPTY, f"the command succeeded and printed nothing{only}"
    if trouble := _TROUBLE.search(ended.stderr[-_LOOKED_AT_BYTES:]):
        line = clip(trouble[0].decode(errors="replace").strip(), 160)
        return R.AMBIGUOUS, f"exit code 0, but standard error says {line!r}: a part of it may have failed"
    return R.OK, ""


def is_hollow(text: str) -> bool:
    """Whether an answer says as little as none."""
    return text.strip().encode() in _HOLLOW


def of_search(ended: Ended) -> Named:
    """grep's end: 1 means that no line matched, which is an answer, not a failure."""
    if ended.exit_code == 1 and not ended.timed_out and not ended.stderr.strip():
        return R.EMPTY, "the search ran and no line matched"
    if ended.exit_code == 2 and ended.stdout:  # some files could not be read, others matched
        return of_command(Ended(0, ended.stdout, ended.stderr, truncated=ended.truncated))
    return of_command(ended)


_READS = ("GET", "HEAD", "OPTIONS")
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_TITLE = re.compile(r"<(?:title|h1)\b[^>]{0,200}>([^<]{0,300})", re.IGNORECASE)
# how the pages begin that servers, proxies and firewalls give out where an answer was due
_ERROR_TITLE = re.compile(
    r"\s*(?:[45]\d\d\b|errors?\b|internal server error|server error|bad gateway|bad request|service unavailable|gateway"
    r" time-?out|not found|page not found|forbidden|unauthori[sz]ed|access denied|request rejected|too many requests|"
    r"attention required|just a moment|(?:down for|under) maintenance|maintenance|(?:please )?(?:log|sign) ?in\b)",
    re.IGNORECASE,
)
_PARSED_BYTES = 2 * 1024 * 1024  # a larger body is not hollow


def of_http(
    status: int | None,
    headers: Mapping[str, str],
    body: bytes,
    *,
    method: str = "GET",
    asked: str = "",
    truncated: bool = False,
    timed_out: bool = False,
    timeout_s: float = 0.0,
) -> Named:
    """The class of an HTTP answer and why, worst news first. `body` is decoded (no gzip) and may be its beginning.

    `status`: None when no answer came. `asked`: the request's Accept header. `truncated`: the body is longer than
    what is given here. Statuses have the meanings of RFC 9110.
    """
    method = method.upper()
    if timed_out:
        did = "" if method in _READS else " and may have done its work"
        return R.TIMEOUT, f"no whole answer came within {timeout_s:g} s; the server may be slow{did}"
    if status is None:
        if method in _READS:
            return R.ERROR, "the connection ended before an answer came"
        return R.AMBIGUOUS, "the connection ended before an answer came: it cannot be told whether the server did it"
    if status >= 400 or status < 100:
        whose = "the server failed" if status >= 500 else "the server refused the request"
        return R.ERROR, f"HTTP {_status_words(status)}: {whose}"
    if 300 <= status < 400:
        place = _header(headers, "location")
        to = f" to {clip(place, 300)}" if place else ""
        return R.ERROR, f"HTTP {_status_words(status)}: sent elsewhere{to}, which was not followed"
    if status < 200:
        return R.AMBIGUOUS, f"HTTP {_status_words(status)}: no final answer came"
    return _of_success(status, headers, body, method, asked.lower(), truncated)


def _of_success(
    status: int, headers: Mapping[str, str], body: bytes, method: str, asked: str, truncated: bool
) -> Named:
    said = f"HTTP {_status_words(status)}"
    bare = body.removeprefix(codecs.BOM_UTF8).strip()
    if method == "HEAD":
        return R.OK, ""  # its answer is the header
    if status in (204, 205):
        return (R.EMPTY, f"{said}: there is nothing to give") if method in _READS else (R.OK, "")
    if status == 202:
        return R.AMBIGUOUS, f"{said}: taken for later, whether it was done is not known yet"
    content_type = _header(headers, "content-type").partition(";")[0].strip().lower()
    wants_json = "json" in content_type or ("json" in asked and "html" not in asked)
    if _is_html(content_type, bare):
        found = _of_page(said, bare, wants_json=wants_json)
        if found is not None:
            return found
    if truncated or status == 206:
        return R.TRUNCATED, f"{said}; this is only a part of the body, there is more"
    if bare in _HOLLOW:
        if status == 201 and _header(headers, "location"):
            return R.OK, ""  # the answer is where the new thing is
        shown = f"an empty value ({bare.decode()})" if bare else "an empty body"
        return R.EMPTY, f"{said} with {shown}"
    if (wants_json or bare[:1] in (b"{", b"[")) and len(bare) <= _PARSED_BYTES:
        return _of_json(said, bare, claimed="json" in content_type)
    return R.OK, ""


def _of_page(said: str, bare: bytes, *, wants_json: bool) -> Named | None:
    """A page where an answer was due, or one that says itself that something went wrong."""
    text = bare[:_LOOKED_AT_BYTES].decode(errors="replace")
    titles = [" ".join(found.split()) for found in _TITLE.findall(text)]
    bad = next((title for title in titles if _ERROR_TITLE.match(title)), None)
    if wants_json:
        titled = f" titled {clip(titles[0], 120)!r}" if titles else ""
        if bad:
            return R.ERROR, f"{said}, but the body is an HTML page that says {clip(bad, 120)!r} where JSON was due"
        return R.AMBIGUOUS, f"{said}, but the body is an HTML page{titled} where JSON was due"
    if bad:
        return R.AMBIGUOUS, f"{said}, but the page says {clip(bad, 120)!r}"
    return None


def _of_json(said: str, bare: bytes, *, claimed: bool) -> Named:
    try:
        value = json.loads(bare)
    except (ValueError, RecursionError):
        return (R.AMBIGUOUS, f"{said}; the body is said to be JSON and is not") if claimed else (R.OK, "")
    if not isinstance(value, dict):
        return R.OK, ""
    if value and all(item is None or item in ("", [], {}) for item in value.values()):
        return R.EMPTY, f"{said}; every field of the body is empty"
    for name in ("ok", "success"):
        if value.get(name) is False:
            return R.AMBIGUOUS, f"{said}, but the body says {name}: false"
    trouble = value.get("error") or value.get("errors")
    if trouble:
        return R.AMBIGUOUS, f"{said}, but the body holds an error: {clip(json.dumps(trouble, ensure_ascii=False), 160)}"
    return R.OK, ""


def _is_html(content_type: str, bare: bytes) -> bool:
    if content_type in _HTML_TYPES:
        return True
    start = bare[:512].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


def _status_words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def exit_words(code: int) -> str:
    """An exit code in words. Meanings: POSIX shell (126, 127), 128 + signal."""
    known = {
        126: "the command was found and cannot be executed",
        127: "the command was not found",
        137: "the command was killed (SIGKILL), most often for using more memory than the limit",
    }
    if code in known:
        return f"exit code {code}: {known[code]}"
    number = -code if code < 0 else code - 128
    if number > 0 and number in signal.valid_signals() and number < 32:
        return f"exit code {code}: the command was ended by {signal.Signals(number).name}"
    return f"exit code {code}"


def named(result_class: ResultClass, why: str) -> str:
    """The line that names a result to the model, or an empty text for a plain success."""
    if result_class is R.OK:
        return ""
    return f"[result: {result_class.value} - {why}]" if why else f"[result: {result_class.value}]"
