"""Arguments against schemas: exact evidence, nothing fetched, nothing endless."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.domain.effects import arguments_hash
from workspaces.domain.schema import MAX_DEPTH, argument_problems, parse_arguments, schema_problems
from workspaces.domain.text import clean_json

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "customer": {"type": "string", "minLength": 1},
        "currency": {"enum": ["EUR", "USD"]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"amount": {"type": "number", "exclusiveMinimum": 0}},
                "required": ["amount"],
            },
        },
    },
    "required": ["customer", "items"],
    "additionalProperties": False,
}


def _with(argument: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": argument}}


def told(schema: dict[str, Any], arguments: Any) -> dict[str, str]:
    return {problem.path: problem.reason for problem in argument_problems(schema, arguments)}


def test_arguments_that_fit_have_no_problem() -> None:
    assert argument_problems(INVOICE, {"customer": "A", "items": [{"amount": 1.5}], "currency": "EUR"}) == []


def test_each_problem_names_the_place_that_has_to_change() -> None:
    found = told(INVOICE, {"items": [{"amount": 2}, {"amount": "12"}, {}], "currency": "GBP", "due": "now"})
    assert found["$.items[1].amount"] == "must be a number, not a string"
    assert found["$.items[2].amount"] == "is required and missing"
    assert found["$.customer"] == "is required and missing"
    assert found["$.currency"] == 'must be one of "EUR", "USD"'
    assert found["$.due"] == "is not an argument here; known are: customer, currency, items"
    assert len(found) == 5


def test_the_offending_value_is_shown_clipped() -> None:
    (problem,) = argument_problems(INVOICE, {"customer": ["x" * 5000], "items": []})
    assert problem.path == "$.customer"
    assert problem.value.startswith('["xxx')
    assert len(problem.value) <= 200


def test_alternatives_report_the_nearest_one() -> None:
    schema = {
        "type": "object",
        "properties": {
            "to": {
                "anyOf": [
                    {"type": "null"},
                    {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                ]
            }
        },
    }
    assert told(schema, {"to": {"id": "7"}}) == {"$.to.id": "must be an integer, not a string"}


@pytest.mark.parametrize(
    ("text", "what"),
    [("a\ud83d", "half of a surrogate pair"), ("\udc80b", "half of a surrogate pair"), ("a\x00b", "a NUL character")],
)
def test_text_that_cannot_be_stored_is_a_problem_at_its_path(text: str, what: str) -> None:
    schema = {"type": "object", "properties": {"lines": {"type": "array"}}}
    (problem,) = argument_problems(schema, {"lines": ["fine", text]})
    assert problem.path == "$.lines[1]"
    assert what in problem.reason
    json.dumps(problem.as_json(), ensure_ascii=False).encode()  # the evidence itself can be stored


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    )
)
def test_what_passes_is_stored_and_hashed_exactly_as_it_is(value: Any) -> None:
    arguments = {"value": value}
    if not argument_problems({"type": "object"}, arguments):
        assert clean_json(arguments) == arguments
        assert len(arguments_hash("tool", arguments)) == 64


def test_problems_are_bounded() -> None:
    many = {f"extra{number}": number for number in range(5000)}
    assert len(argument_problems(INVOICE, many)) == 20


def test_a_long_text_is_never_matched_against_a_pattern() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(x*)y$"}}}
    started = time.monotonic()
    found = told(schema, {"a": "x" * 1_000_000})
    assert "too long" in found["$.a"]
    assert time.monotonic() - started < 1


class TestParsing:
    def test_an_object_is_parsed(self) -> None:
        assert parse_arguments('{"a": [1]}') == ({"a": [1]}, [])

    def test_no_text_is_no_arguments(self) -> None:
        assert parse_arguments(" ") == ({}, [])

    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            ('{"path": "a.txt", "content": "begin', "it ends too early"),
            ('{"a": 1', "it ends too early"),
            ("{{'a': 1}}", "line 1, column 2"),
            ("[1]", "must be a JSON object, not an array"),
            ('"x"', "must be a JSON object, not a string"),
            ('{"a": NaN}', "NaN is not JSON"),
            ('{"a": 1, "a": 2}', "stands there twice"),
            ('{"a":' + "[" * 100_000, "nested deeper"),
            ('{"a":' + "9" * 10_000 + "}", "not valid JSON"),
        ],
    )
    def test_what_does_not_parse_is_evidence(self, raw: str, reason: str) -> None:
        arguments, problems = parse_arguments(raw)
        assert arguments is None
        assert reason in problems[0].reason

    def test_half_a_surrogate_pair_parses_and_is_then_a_problem(self) -> None:
        arguments, problems = parse_arguments('{"a": "\\ud83d"}')
        assert problems == []
        assert "surrogate" in argument_problems({"type": "object"}, arguments)[0].reason

    def test_nesting_within_the_parser_but_past_the_limit_is_a_problem(self) -> None:
        arguments, _ = parse_arguments('{"a":' + "[" * 300 + "]" * 300 + "}")
        assert f"deeper than {MAX_DEPTH}" in argument_problems({"type": "object"}, arguments)[0].reason


class TestSchemas:
    def test_an_ordinary_schema_is_taken(self) -> None:
        assert schema_problems(INVOICE) == []
        assert (
            schema_problems(
                {"type": "object", "$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
            )
            == []
        )

    @pytest.mark.parametrize(
        ("schema", "path", "reason"),
        [
            ([], "$", "is an object"),
            ({"type": "array"}, "$.type", 'must be "object"'),
            (_with({"type": "strnig"}), "$.properties.a.type", ""),
            (_with({"$ref": "https://example.org/s"}), "$.properties.a.$ref", "nothing is fetched"),
            (_with({"$ref": "file:///etc/passwd"}), "$.properties.a.$ref", "nothing is fetched"),
            (_with({"pattern": "(a+)+$"}), "$.properties.a.pattern", "repeat inside a repeat"),
            ({"type": "object", "patternProperties": {"(": {}}}, '$.patternProperties["("]', "not a regular"),
            ({"type": "object", "allOf": [{"$ref": "#/$defs/none"}]}, "$", "not in it"),
            ({"type": "object", "allOf": [{"$ref": "#"}]}, "$", "without end"),
        ],
    )
    def test_a_schema_that_cannot_be_applied_is_named_with_its_place(self, schema: Any, path: str, reason: str) -> None:
        problem = schema_problems(schema)[0]
        assert problem.path == path
        assert reason in problem.reason

    def test_a_schema_nested_without_measure_is_refused_without_recursing(self) -> None:
        schema: dict[str, Any] = {"type": "object"}
        for _ in range(20_000):
            schema = {"type": "object", "not": schema}
        assert "nested deeper" in schema_problems(schema)[0].reason

    def test_nothing_is_ever_fetched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_network(*_: Any, **__: Any) -> None:
            raise AssertionError("a schema reached for the network")

        monkeypatch.setattr(socket, "socket", no_network)
        monkeypatch.setattr(socket, "getaddrinfo", no_network)
        remote = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}}
        assert "not in it" in argument_problems(remote, {"a": 1})[0].reason
        inner = {"type": "object", "$id": "http://127.0.0.1:9/", "properties": {"a": {"$ref": "other.json"}}}
        assert "not in it" in argument_problems(inner, {"a": 1})[0].reason

    def test_an_argument_may_be_called_like_a_keyword(self) -> None:
        fine = {"type": "object", "properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}}}
        assert schema_problems(fine) == []
        remote = {"type": "object", "properties": {"default": {"$ref": "https://example.org/s"}}}
        assert schema_problems(remote)[0].path == "$.properties.default.$ref"

    def test_an_address_in_a_default_is_only_data(self) -> None:
        assert schema_problems({"type": "object", "properties": {"a": {"default": {"$ref": "https://x"}}}}) == []
