"""Column types that several nouns share."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from django.db import models
from django.db.models import Q


def choices(enum: type[StrEnum]) -> list[tuple[str, str]]:
    return [(member.value, member.value.replace("_", " ")) for member in enum]


def one_of(column: str, enum: type[StrEnum], *, table: str, blank: bool = False) -> models.CheckConstraint:
    """The database refuses what the enum does not know."""
    allowed = [member.value for member in enum] + ([""] if blank else [])
    return models.CheckConstraint(condition=Q(**{f"{column}__in": allowed}), name=f"{table}_{column}_known")


def usd(**kwargs: Any) -> models.DecimalField:
    """USD with 9 places."""
    return models.DecimalField(max_digits=20, decimal_places=9, **kwargs)
