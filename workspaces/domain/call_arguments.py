"""Reads the argument text of one call, and says where and why it cannot be read. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

from workspaces.domain.text import clean_json, clip, too_deep

CallProblem = Literal["unparsable", "cut_off", "not_an_object"]

_FENCED = re.compile(r"```[ \t]*[\w.+-]*[ \t]*\n?(.*?)```", re.DOTALL)


def read_arguments(raw: str, limited: bool) -> tuple[dict[str, Any] | None, CallProblem | None, str, str]:
    """(arguments, problem, detail, correction)"""
    try:
        value = loads(raw)
    except (ValueError, RecursionError) as error:
        unfenced = _unfenced(raw)
        if unfenced is not None:
            return unfenced, None, "", "the arguments stood in a fenced block: read without it"
        detail = why(error, raw)
        if limited and ends_early(raw):
            return None, "cut_off", f"the reply ended at the token limit: {detail}", ""
        return None, "unparsable", detail, ""
    if isinstance(value, str):  # encoded twice: a JSON text that holds the object's JSON text
        try:
            inner = loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return cleaned(inner), None, "", "the arguments were encoded as JSON twice: read once more"
    if not isinstance(value, dict):
        return None, "not_an_object", f"the arguments are {kind_of(value)}, not an object", ""
    return cleaned(value), None, "", ""


def _unfenced(raw: str) -> dict[str, Any] | None:
    fence = _FENCED.fullmatch(raw.strip())
    if fence is None:
        return None
    try:
        value = loads(fence[1])
    except (ValueError, RecursionError):
        return None
    return cleaned(value) if isinstance(value, dict) else None


def loads(raw: str) -> Any:
    """Raises ValueError for what is no JSON or holds an infinite number, RecursionError for what is too deep."""
    value = json.loads(raw, parse_constant=refuse_constant, parse_float=finite)
    if too_deep(value):
        raise RecursionError
    return value


def finite(text: str) -> float:
    """For `parse_float`: 1e999 is valid JSON, and infinite."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{clip(text, 40)} is too large a number")
    return number


def refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON value")


def cleaned(value: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = clean_json(value)
    return clean


def why(error: Exception, raw: str) -> str:
    """Position and reason, with the text around it."""
    if not isinstance(error, json.JSONDecodeError):
        return "nested too deeply" if isinstance(error, RecursionError) else str(error)
    around = raw[max(0, error.pos - 20) : error.pos + 20]
    near = f", near {clip(around, 40)!r}" if around else ""
    return f"line {error.lineno}, column {error.colno}: {error.msg}{near}"


def ends_early(raw: str) -> bool:
    """Whether the text is the beginning of a JSON value: what is open in it could still be closed."""
    depth, quoted, escaped = 0, False, False
    for char in raw:
        if quoted:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                quoted = False
        elif char == '"':
            quoted = True
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
    return quoted or depth > 0 or not raw.strip()


def kind_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    for kind, word in ((list, "an array"), (str, "a string"), (int, "a number"), (float, "a number")):
        if isinstance(value, kind):
            return word
    return "something else"
