"""`make bench-sleep`: what it takes to save, put to sleep, wake, restore and fork a workspace, beside `docker commit`.

Bar: with 10,000 files and 500 MB, from asleep to the first command's end, p50 under 0.5 s and p95 under 1 s.
The peer does the same with the engine's own means, in the same run: the files lie in the container itself, `commit`
makes an image of it, and a container is started from that.
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
import tarfile
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.bench.ground import change, fill, installation, need_docker, spread, tell, timed

WAKE_P50_S, WAKE_P95_S = 0.5, 1.0
_keys = itertools.count(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--store", choices=("auto", "btrfs", "content"), default="auto")
    parser.add_argument("--without-peer", action="store_true")
    chosen = parser.parse_args()
    with installation(store=chosen.store, AGENTDESK_SANDBOX_DRIVER="docker"):
        need_docker()
        figures: dict[str, Any] = {"files": chosen.files, "mb": chosen.mb, "rounds": chosen.rounds}
        figures |= _ours(chosen.files, chosen.mb, chosen.rounds)
        if not chosen.without_peer:
            figures |= _engine_commit(chosen.files, chosen.mb, max(3, chosen.rounds // 4))
    figures["holds"] = figures["wake_p50_s"] < WAKE_P50_S and figures["wake_p95_s"] < WAKE_P95_S
    return tell(figures)


def _ours(files: int, megabytes: int, rounds: int) -> dict[str, Any]:
    from django.db.models.functions import Now

    from tests import harness
    from workspaces.engine import lifecycle
    from workspaces.engine.boxes import driver_named, sandbox_for
    from workspaces.models import Workspace

    user = harness.make_user()
    place = harness.make_workspace(user, driver="docker")
    driver: Any = driver_named("docker")
    sandbox = sandbox_for(place)
    folder: Path = driver.store.path(place.sandbox_key) / "files"
    fill(folder, files=files, megabytes=megabytes, owner=driver.owner)
    first = sandbox.snapshot()
    took: dict[str, list[float]] = {}
    added = []

    def measure(name: str, work: Callable[[], Any]) -> None:
        took.setdefault(name, []).append(timed(work))

    def wake() -> None:
        waking = lifecycle.wake(place.pk)
        assert waking.awake
        took.setdefault("start", []).append(waking.duration_s)
        assert sandbox.exec(["true"], key=f"k{next(_keys)}").exit_code == 0

    def forked(fork: Workspace) -> None:
        copy = sandbox_for(fork)
        copy.restore(first.ref)
        assert lifecycle.wake(fork.pk).awake
        assert copy.exec(["true"], key="k").exit_code == 0

    again = range(rounds + 1)
    assert lifecycle.wake(place.pk).awake
    for number in again:
        change(folder, number)
        measure("snapshot", lambda: added.append(sandbox.snapshot().added_bytes))
    for _ in again:
        Workspace.objects.filter(pk=place.pk).update(used_at=Now() - timedelta(days=1))
        measure("sleep", lambda: lifecycle.sleep(place.pk))
        assert Workspace.objects.get(pk=place.pk).state == "asleep"
        measure("wake", wake)
    sandbox.stop()
    for _ in again:
        measure("restore", lambda: sandbox.restore(first.ref))
    for number in again:
        fork = harness.make_workspace(user, driver="docker")
        measure("fork", lambda fork=fork: forked(fork))
        change(folder, number)
        sandbox_for(fork).destroy()
        # what was deleted gives its room back meanwhile, as the scheduler would have it
        tidying = threading.Thread(target=driver.snapshots.tidy)
        tidying.start()
        measure("snapshot_while_tidying", sandbox.snapshot)
        tidying.join()
    found: dict[str, Any] = {"store": driver.store.kind, "first_snapshot_s": round(first.duration_s, 3)}
    for name, seconds in took.items():
        found |= spread(name, seconds[1:])  # the first one pays for imports
    return found | {"snapshot_added_kb": round(sum(added[1:]) / len(added[1:]) / 1024)}


def _engine_commit(files: int, megabytes: int, rounds: int) -> dict[str, Any]:
    """The same size in the container's own layer; the image that `commit` makes is what a wake would start from."""
    import tempfile

    from workspaces.engine.boxes import driver_named

    driver: Any = driver_named("docker")
    client = driver.client
    name = f"agentdesk-bench-{uuid.uuid4().hex[:8]}"
    plain = {"command": ["sleep", "infinity"], "network_mode": "none", "init": True, "detach": True}
    container = client.containers.run(driver.image, name=name, **plain)
    images = []
    took: dict[str, list[float]] = {"docker_commit": [], "docker_wake": []}
    try:
        with tempfile.TemporaryDirectory() as here:
            fill(Path(here) / "w", files=files, megabytes=megabytes)
            _copy_into(container, Path(here) / "w")
        for number in range(rounds):
            _copy_into(container, None, number)
            took["docker_commit"].append(timed(lambda: images.append(container.commit(name, f"r{len(images)}"))))
            woken: list[Any] = []

            def wake(woken: list[Any] = woken) -> None:
                woken.append(client.containers.run(images[-1], name=f"{name}-w", **plain))
                assert woken[0].exec_run(["true"]).exit_code == 0

            try:
                took["docker_wake"].append(timed(wake))
            finally:
                for one in woken:
                    one.remove(force=True)
    finally:
        container.remove(force=True)
        for image in images:
            client.images.remove(image.id, force=True)
    return {key: value for name, seconds in took.items() for key, value in spread(name, seconds).items()}


def _copy_into(container: Any, folder: Path | None, number: int = 0) -> None:
    """The folder, or (without one) a few changed files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        if folder is not None:
            archive.add(folder, arcname="w")
        else:
            for changed in range(20):
                entry = tarfile.TarInfo(f"w/changed-{number}-{changed}")
                entry.size = 4096
                archive.addfile(entry, io.BytesIO(uuid.uuid4().bytes * 256))
    assert container.put_archive("/opt", packed.getvalue())


if __name__ == "__main__":
    sys.exit(main())
