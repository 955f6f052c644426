"""A user's pattern is matched as Python would, and can hang nobody."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workspaces.domain.patterns import Pattern, PatternError, compiled

TEXTS = ["", "a", "b", "ab", "aab\n", "foo bar", "x\ny\n", "12-34", "https://example.com/a?b=1", "ÄÖ äö", "\n", "aaaa"]


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a",
        "^a$",
        "a+b",
        "(a|b)*c",
        "^(?:a|ab)(?:b|)$",
        r"\bbar\b",
        r"\Bo",
        r"^\d{2}-\d{2,}$",
        "[^a-f]",
        r"[\w.]+\.com",
        "(?i)FOO",
        "(?i)[ä]ö",
        "(?m)^y$",
        "(?s)x.y",
        "x.y",
        r"y\Z",
        "y$",
        r"\Ax",
        "a{2,3}",
        "a{5}",
        "a??b",
        "(a*)*b",
        r"\S+\s\S+",
        "[^\\n]$",
        "a{0}",
        r"(?a)\w\s",
    ],
)
@pytest.mark.parametrize("text", TEXTS)
def test_a_pattern_matches_as_python_says(pattern: str, text: str) -> None:
    assert compiled(pattern).found_in(text) is (re.search(pattern, text) is not None)


_piece = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", "a?", "b*", "a+", "a{1,2}", "(?:ab)*", "(a|b)"]
)


@given(st.lists(_piece, max_size=6).map("".join), st.text("ab\n ", max_size=8))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_pattern_matches_as_python_says(pattern: str, text: str) -> None:
    assert Pattern(pattern).found_in(text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a|a)*b", "(a+)+$", "(.*)(.*)(.*)(.*)(.*)x$", "(a?){30}a{30}b", "(?:a*){9}b"])
def test_a_pattern_that_hangs_python_does_not_hang_here(pattern: str) -> None:
    began = time.monotonic()
    assert not compiled(pattern).found_in("a" * 20_000 + "!")
    assert time.monotonic() - began < 30  # Python needs longer than the age of the world


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "not a regular expression"),
        (r"(a)\1", "groupref is not taken"),
        ("a(?=b)", "assert is not taken"),
        ("(?<!a)b", "assert not is not taken"),
        ("(?>a)", "atomic group is not taken"),
        ("a++", "possessive repeat is not taken"),
        ("(?i:a)b", "flags for a part"),
        ("(?:a{100}){100}", "too large"),
        ("x" * 501, "at most 500"),
        ("(a{0,99}){0,99}", "too large"),
    ],
)
def test_what_would_need_going_back_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        Pattern(pattern)
