"""Fixtures of the desk's tests. Imports late: pytest may read this file before Django is set up."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def desk(db: None) -> Any:
    """A workspace with its owner, an operator, a viewer, an outsider, and site staff."""
    from tests.web.people import make_desk

    return make_desk()


@pytest.fixture
def signed_in() -> Any:
    """user → client."""
    from tests.web.people import sign_in

    return sign_in
