"""How a tool call's result is named. A result is never plain success when it is not. Pure."""

from __future__ import annotations

from enum import StrEnum


class ResultClass(StrEnum):
    OK = "ok"
    ERROR = "error"
    EMPTY = "empty"  # the call went through and gave nothing
    AMBIGUOUS = "ambiguous"  # it cannot be told whether it worked
    TRUNCATED = "truncated"  # there was more than is kept
    TIMEOUT = "timeout"
