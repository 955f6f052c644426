"""Keeps secrets out of the log: a filter that blanks what looks like a key, or acts like one, before a line is
written.
"""

from __future__ import annotations

import logging
import re

BLANK = "[secret]"
_PATTERNS = [
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}"),  # OpenAI, Anthropic and those who copy them
    re.compile(r"\b(?:ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|hf)[-_]?[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{12,}"),
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user:password in an address
    re.compile(r"(?<=/act/)[^\s/?#<>\"']{6,}"),  # a link that acts: its token is the leave to act
    re.compile(r"""(?ix)(?<![a-z]) (?:[a-z_-]*(?:api[_-]?key|password|passwd|secret|token|x-api-key))
        ["']? \s* [:=] \s* ["']? (?P<value>[^\s"',;&}]{6,})"""),
]


def scrub(text: str) -> str:
    """The text with each secret replaced; the name in front of one stays readable."""
    for pattern in _PATTERNS:
        text = pattern.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    value = match.groupdict().get("value")
    return match.group().replace(value, BLANK) if value else BLANK


class ScrubbingFormatter(logging.Formatter):
    """Scrubs the finished line, so that arguments and tracebacks are covered as well."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))
