"""Finds the one static file that is served from a package which is no Django app: Plotly's script."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

NAME = "plotly/plotly.min.js"


def plotly_data() -> Path:
    """The package's folder, found without importing it (that takes a second)."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("plotly")
    return Path(spec.origin).parent / "package_data"


class PlotlyFinder(BaseFinder):
    """`plotly/plotly.min.js`, and nothing else of that folder (it also holds data sets and widgets)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.storage = FileSystemStorage(location=plotly_data())
        self.storage.prefix = "plotly"  # type: ignore[attr-defined]

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        if self.storage.exists("plotly.min.js"):
            return []
        message = "The plotly package has no plotly.min.js."
        return [Error(message, hint="Install it again.", id="workspaces.E006")]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [self.storage.path("plotly.min.js")] if path == NAME else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Any) -> Iterator[Any]:
        yield "plotly.min.js", self.storage
