"""What the benchmarks of disks and sandboxes share: servers of their own, a filled workspace, figures, a table."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentdesk.embedded.stack import Stack

CHANGED = 20


@contextmanager
def installation(
    *, store: str = "auto", parts: Sequence[str] = ("postgres", "valkey"), **settings: str
) -> Iterator[Stack]:
    """An empty installation in a folder of its own, Django set up in this process; sandboxes are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="agentdesk-bench-") as home:
        stack = Stack(Path(home), set(parts))
        stack.open()
        try:
            stack.start_servers()
            os.environ.update(stack.environment | settings)
            os.environ["AGENTDESK_SANDBOX_STORE"] = store
            os.environ["DJANGO_SETTINGS_MODULE"] = "agentdesk.settings"
            os.environ["AGENTDESK_STATIC_FROM_SOURCE"] = "1"
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0, interactive=False)
            yield stack
        finally:
            try:
                _end_sandboxes()
            finally:
                stack.close()


def _end_sandboxes() -> None:
    from workspaces.engine import boxes
    from workspaces.models import Workspace

    for workspace in Workspace.objects.all():
        if boxes.driver_for(workspace) in boxes.open_drivers():
            boxes.sandbox_for(workspace).destroy()
    for driver in boxes.open_drivers():
        driver.close()


def need_docker() -> None:
    """Ends the run with a reason where there is no engine or no image."""
    from workspaces.engine.boxes import driver_named
    from workspaces.sandboxes.image import default_tag, ensure_image

    driver: Any = driver_named("docker")
    ensure_image(driver.client, default_tag(), print)
    driver.check()


def fill(folder: Path, *, files: int, megabytes: int, owner: tuple[int, int] | None = None) -> None:
    """`files` files in folders of a hundred, of unlike sizes, `megabytes` in all, that no compression makes smaller."""
    mean = megabytes * 1024 * 1024 // files
    for number in range(files):
        place = folder / f"d{number // 100:03}"
        if number % 100 == 0:
            place.mkdir(parents=True)
            _give(place, owner)
        size = mean // 2 if number % 2 else mean + mean - mean // 2
        path = place / f"f{number:05}"
        path.write_bytes(os.urandom(size))
        _give(path, owner)


def change(folder: Path, round_: int, *, size: int = 4096) -> None:
    """Other contents in some files."""
    paths = sorted(folder.glob("d*/f*"))
    for number in range(CHANGED):
        paths[(round_ * CHANGED + number) % len(paths)].write_bytes(os.urandom(size))


def _give(path: Path, owner: tuple[int, int] | None) -> None:
    if owner:
        os.chown(path, *owner)


def timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile, in seconds."""
    ordered = sorted(seconds)
    at_95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return {f"{name}_p50_s": round(statistics.median(ordered), 3), f"{name}_p95_s": round(at_95, 3)}


def tell(figures: dict[str, Any]) -> int:
    """The table, the line of JSON, and the exit code."""
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        if not isinstance(value, list | dict):
            print(f"{name:<{width}}  {value}")
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1
