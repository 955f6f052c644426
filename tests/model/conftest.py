"""The product as processes, and the local model as a server. What is missing fails the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentdesk.environment import REPO
from tests.browser.product import Product
from tests.model.server import LocalModel
from tests.model.weights import NotReady


@pytest.fixture(scope="package")
def product() -> Iterator[Product]:
    with Product() as running:
        yield running


@pytest.fixture(scope="package")
def model(request: pytest.FixtureRequest) -> Iterator[LocalModel]:
    """One server for all tests of a form of calls: it keeps the prompt that it has read. `param`: calls in the text?"""
    try:
        with LocalModel(plain=request.param) as running:
            yield running
    except NotReady as missing:
        pytest.fail(str(missing))


@pytest.fixture
def give_task(product: Product, model: LocalModel) -> Callable[..., dict[str, Any]]:
    """A new task for the model in a new workspace; see prepare.py."""

    def give(*, hold: bool = False, temperature: float = 0.0, seed: int = 1) -> dict[str, Any]:
        order = {"base_url": model.base_url, "model": model.model, "driver": product.driver, "hold": hold}
        order |= {"temperature": temperature, "seed": seed}
        done = subprocess.run(
            [sys.executable, "-m", "tests.model.prepare", json.dumps(order)],
            cwd=REPO,
            env=dict(os.environ) | product.stack.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    return give
