"""Arguments against a JSON Schema (Draft 2020-12), as evidence a model can act on. Pure: fetches nothing.

Two readers: the gate (`parse_arguments`, `argument_problems`) and a tool's declaration (`schema_problems`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from re import _constants as rules  # type: ignore[attr-defined]  # the only parser of Python's own patterns
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, exceptions, validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from workspaces.domain.text import MAX_DEPTH, clean_json, clean_text, clip, too_deep

MAX_ARGUMENTS_CHARS = 4_000_000  # a written file travels in them
MAX_SCHEMA_CHARS = 100_000
MAX_PROBLEMS = 20
MAX_PATTERN_CHARS = 500
MAX_MATCHED_CHARS = 10_000  # a `pattern` is only tried on texts up to this length
VALUE_CHARS = 200

_NOTHING: Registry[Any] = Registry()  # empty: a reference out of the schema has nowhere to go
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_HOLD_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_HELD_AS_DATA = ("const", "enum", "default", "examples")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where. `path` as `$.items[0].amount`; `value` is a clipped excerpt, or empty."""

    path: str
    reason: str
    value: str = ""

    def as_json(self) -> dict[str, str]:
        return {"path": self.path, "reason": self.reason, "value": self.value}

    def __str__(self) -> str:
        found = f" (found: {self.value})" if self.value else ""
        return f"{self.path}: {self.reason}{found}"


def parse_arguments(raw: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The arguments of a call as the model sent them. Never both empty and right: None comes with problems.

    An empty text is an empty object: vendors send it for a tool without arguments.
    """
    if len(raw) > MAX_ARGUMENTS_CHARS:
        return None, [Problem("$", f"the arguments have {len(raw)} characters, more than {MAX_ARGUMENTS_CHARS}")]
    if not raw.strip():
        return {}, []
    try:
        value = json.loads(raw, parse_constant=_no_constant, object_pairs_hook=_no_doubles)
    except json.JSONDecodeError as error:
        return None, [_parse_problem(raw, error)]
    except RecursionError:
        return None, [Problem("$", f"the JSON is nested deeper than {MAX_DEPTH} levels")]
    except ValueError as error:  # ours, or an integer with more digits than Python reads
        return None, [Problem("$", f"not valid JSON: {error}")]
    if not isinstance(value, dict):
        return None, [Problem("$", f"the arguments must be a JSON object, not {_kind(value)}", show(value))]
    return value, []


def argument_problems(schema: Mapping[str, Any], arguments: Any) -> list[Problem]:
    """Every way in which `arguments` do not fit, in path order, at most MAX_PROBLEMS. Empty: they fit."""
    problems = _unstorable(arguments)
    if problems:
        return problems[:MAX_PROBLEMS]
    try:
        errors = list(_Validator(dict(schema), registry=_NOTHING).iter_errors(arguments))
    except RecursionError:
        return [Problem("$", "the tool's schema refers to itself without end")]
    except Unresolvable as error:
        return [Problem("$", f"the tool's schema refers to something that is not in it: {clip(str(error), 200)}")]
    except (re.error, TypeError, ValueError, OverflowError) as error:
        return [Problem("$", f"the tool's schema cannot be applied: {clip(str(error), 200)}")]
    found = [problem for error in errors for problem in _in_words(error)]
    return sorted(dict.fromkeys(found), key=lambda problem: problem.path)[:MAX_PROBLEMS]


def schema_problems(schema: Any) -> list[Problem]:
    """Why `schema` cannot be the arguments' schema of a declared tool. Empty: it can."""
    if not isinstance(schema, Mapping):
        return [Problem("$", f"a JSON Schema is an object, not {_kind(schema)}", show(schema))]
    if too_deep(schema, MAX_DEPTH):
        return [Problem("$", f"nested deeper than {MAX_DEPTH} levels")]
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        return [Problem("$", f"not JSON: {error}")]
    if size > MAX_SCHEMA_CHARS:
        return [Problem("$", f"has {size} characters, more than {MAX_SCHEMA_CHARS}")]
    if schema.get("type") != "object":
        return [Problem("$.type", 'must be "object": a tool takes named arguments', show(schema.get("type")))]
    problems = list(_keyword_problems(schema, "$"))
    if problems:
        return problems[:MAX_PROBLEMS]
    try:
        Draft202012Validator.check_schema(dict(schema))
    except exceptions.SchemaError as error:
        return _in_words(error)[:MAX_PROBLEMS]
    # one try shows a reference to nowhere or to itself
    return [found for found in argument_problems(schema, {}) if found.reason.startswith("the tool's schema")]


def show(value: Any) -> str:
    """A value as JSON, cleaned and clipped to VALUE_CHARS."""
    if too_deep(value, MAX_DEPTH):
        return "(nested too deep to show)"
    try:
        return clip(json.dumps(clean_json(value), ensure_ascii=False), VALUE_CHARS)
    except (TypeError, ValueError):
        return clip(clean_text(repr(value)), VALUE_CHARS)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[exceptions.ValidationError]:
    """`pattern`, but never on a text so long that matching could take the worker with it."""
    if not validator.is_type(instance, "string"):
        return
    if len(instance) > MAX_MATCHED_CHARS:
        yield exceptions.ValidationError(
            f"is too long to be matched against a pattern (more than {MAX_MATCHED_CHARS} characters)"
        )
    elif not re.search(pattern, instance):
        yield exceptions.ValidationError(f"does not match the pattern {clip(pattern, 100)}")


def _multiple_of(validator: Any, factor: Any, instance: Any, _schema: Any) -> Iterator[exceptions.ValidationError]:
    """`multipleOf` that takes 1e308 and 0.01 as a person means them (the library overflows)."""
    if not validator.is_type(instance, "number"):
        return
    try:
        quotient = instance / factor
    except (OverflowError, ZeroDivisionError):
        quotient = math.nan
    if not math.isfinite(quotient) or abs(quotient - round(quotient)) > 1e-9 * max(1.0, abs(quotient)):
        yield exceptions.ValidationError(f"must be a multiple of {factor}")


_Validator: Any = validators.extend(Draft202012Validator, {"pattern": _pattern, "multipleOf": _multiple_of})


def _keyword_problems(node: Any, path: str, *, names: bool = False) -> Iterator[Problem]:
    """References out of the schema and patterns that a text could make endless. Depth is bounded before.

    `names`: the keys here are the arguments' own names, not keywords.
    """
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _keyword_problems(item, f"{path}[{index}]")
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        here = _join(path, key)
        if names:
            yield from _keyword_problems(value, here)
            continue
        if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
            yield Problem(here, "may only refer into the schema itself (#/$defs/…): nothing is fetched", show(value))
        if key == "pattern" and isinstance(value, str):
            yield from _pattern_problems(value, here)
        if key == "patternProperties" and isinstance(value, Mapping):
            for pattern in value:
                yield from _pattern_problems(str(pattern), _join(here, pattern))
        if key not in _HELD_AS_DATA:
            yield from _keyword_problems(value, here, names=key in _HOLD_NAMES)


def _pattern_problems(pattern: str, path: str) -> Iterator[Problem]:
    if len(pattern) > MAX_PATTERN_CHARS:
        yield Problem(path, f"a pattern has at most {MAX_PATTERN_CHARS} characters", clip(pattern, VALUE_CHARS))
        return
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield Problem(path, f"not a regular expression: {error}", clip(pattern, VALUE_CHARS))
        return
    if _repeats_a_repeat(tree, inside=False):
        reason = "a repeat inside a repeat, such as (a+)+, can take for ever: write the pattern without"
        yield Problem(path, reason, clip(pattern, VALUE_CHARS))


def _repeats_a_repeat(tree: Any, *, inside: bool) -> bool:
    for rule, detail in tree:
        endless = rule in (rules.MAX_REPEAT, rules.MIN_REPEAT) and detail[1] == rules.MAXREPEAT
        if endless and inside:
            return True
        for child in _subtrees(detail):
            if _repeats_a_repeat(child, inside=inside or endless):
                return True
    return False


def _subtrees(detail: Any) -> Iterator[Any]:
    if isinstance(detail, parser.SubPattern):
        yield detail
    elif isinstance(detail, list | tuple):
        for item in detail:
            yield from _subtrees(item)


def _unstorable(value: Any, path: str = "$", depth: int = 0) -> list[Problem]:
    """What no store can keep as it is, so that an approval would be bound to something that never runs."""
    if depth > MAX_DEPTH:
        return [Problem(path, f"nested deeper than {MAX_DEPTH} levels")]
    if isinstance(value, str):
        if clean_text(value) == value:
            return []
        what = "a NUL character" if "\x00" in value else "half of a surrogate pair"
        told = f"holds {what}, which cannot be stored or sent; write the text without it"
        return [Problem(path, told, clip(clean_text(value), VALUE_CHARS))]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(path, "must be a finite number", repr(value))]
    found: list[Problem] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if clean_text(str(key)) != key:
                found.append(Problem(path, "has a name that is not plain text", show(str(key))))
            found += _unstorable(item, _join(path, key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            found += _unstorable(item, f"{path}[{index}]", depth + 1)
            if len(found) >= MAX_PROBLEMS:
                break
    return found


def _in_words(error: Any) -> list[Problem]:
    """One schema error as problems, each at the place that has to change."""
    path, rule, wanted, value = (
        clean_text(error.json_path),
        error.validator,
        error.validator_value,
        error.instance,
    )
    match rule:
        case "required":
            name = next((name for name in wanted if f"{name!r} is" in error.message), "")
            return [Problem(_join(path, name), "is required and missing")]
        case "additionalProperties" | "unevaluatedProperties" if isinstance(value, Mapping):
            known = list(error.schema.get("properties", {}))
            patterns = error.schema.get("patternProperties", {})
            extra = [name for name in value if name not in known and not any(re.search(p, name) for p in patterns)]
            names = ", ".join(known) or "none"
            reason = f"is not an argument here; known are: {clip(names, VALUE_CHARS)}"
            return [Problem(_join(path, name), reason, show(value[name])) for name in extra]
        case "type":
            kinds = wanted if isinstance(wanted, list) else [wanted]
            reason = f"must be {' or '.join(_a(kind) for kind in kinds)}, not {_kind(value)}"
        case "enum":
            reason = f"must be one of {clip(', '.join(show(choice) for choice in wanted), 400)}"
        case "const":
            reason = f"must be {show(wanted)}"
        case "minLength" | "minItems" | "minProperties":
            reason = f"is too short: {len(value)}, at least {wanted}"
        case "maxLength" | "maxItems" | "maxProperties":
            reason = f"is too long: {len(value)}, at most {wanted}"
        case "minimum":
            reason = f"must be at least {wanted}"
        case "maximum":
            reason = f"must be at most {wanted}"
        case "exclusiveMinimum":
            reason = f"must be more than {wanted}"
        case "exclusiveMaximum":
            reason = f"must be less than {wanted}"
        case "anyOf" | "oneOf" if error.context:
            best = exceptions.best_match([error])
            if best is not None and best is not error:
                return _in_words(best)
            reason = "fits none of the allowed forms"
        case _:
            reason = clip(clean_text(error.message), 300)
    return [Problem(path, reason, show(value))]


def _parse_problem(raw: str, error: json.JSONDecodeError) -> Problem:
    around = clean_text(raw[max(0, error.pos - 40) : error.pos + 40])
    if error.pos >= len(raw.rstrip()) or error.msg.startswith("Unterminated string"):
        reason = f"not valid JSON: it ends too early, after {len(raw)} characters (cut off?)"
        return Problem("$", reason, clip(clean_text(raw[-80:]), VALUE_CHARS))
    reason = f"not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    return Problem("$", reason, clip(around, VALUE_CHARS))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {show(twice)} stands there twice")
    return found


def _join(path: str, name: Any) -> str:
    text = clip(clean_text(str(name)), 100)
    return f"{path}.{text}" if re.fullmatch(r"[A-Za-z_$][\w$-]*", text) else f"{path}[{show(text)}]"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "an array"


def _a(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind[:1] in "aoi" else f"a {kind}"
