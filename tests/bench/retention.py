"""`make bench-retention`: what 500 steps on a workspace of 500 MB keep stored, step by step, in either store.

Every step writes the same few files anew, as builds and logs do, and is followed by a snapshot and its checkpoint;
retention runs every 25 steps. Bar: at the end no more is stored than the workspace itself and the changes of the
checkpoints that stay, with a quarter to spare; every checkpoint that is offered can be read, and no other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.ground import fill, installation, tell

SLACK = 1.25
CHANGED, EVERY = 4, 25


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--store", choices=("btrfs", "content"), action="append")
    chosen = parser.parse_args()
    from workspaces.domain.retention import CEILING, EVERY, LAST

    figures: dict[str, Any] = {"steps": chosen.steps, "files": chosen.files, "mb": chosen.mb}
    figures |= {"keep_last": LAST, "keep_every": EVERY, "most_kept_ever": 1 + LAST + CEILING}
    holds = True
    began = time.monotonic()
    for store in chosen.store or ("btrfs", "content"):
        command = [sys.executable, "-c", f"from tests.bench.retention import run; run({store!r}, {vars(chosen)!r})"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)  # a store a process
        print(ran.stderr, file=sys.stderr, end="")
        if ran.returncode:
            raise SystemExit(f"{store}: the run failed: {ran.stdout[-500:]}")
        found = dict(line.split("=", 1) for line in ran.stdout.splitlines() if "=" in line)
        for line in ran.stdout.splitlines():
            if line.startswith("step "):
                print(f"{store}: {line}")
        figures |= {f"{store}_{name}": float(value) for name, value in found.items()}
        holds = holds and bool(figures.get(f"{store}_holds"))
    figures["took_s"] = round(time.monotonic() - began)
    figures["holds"] = holds
    return tell(figures)


def run(store: str, chosen: dict[str, Any]) -> None:
    """Prints the figures of one store as name=value."""
    with installation(store=store, AGENTDESK_SANDBOX_DRIVER="docker"):
        _run(store, chosen)


def _run(store: str, chosen: dict[str, Any]) -> None:
    from tests import harness
    from workspaces.actions.checkpoints import save_checkpoint, store_snapshot
    from workspaces.actions.pen import writing
    from workspaces.engine import retention
    from workspaces.engine.boxes import driver_named, sandbox_for
    from workspaces.models import Checkpoint

    driver: Any = driver_named("docker")
    place = harness.make_workspace(harness.make_user(), driver="docker")
    task = harness.scripted_task("replies: [{content: none}]", workspace=place)
    sandbox = sandbox_for(place)
    folder: Path = driver.store.path(place.sandbox_key) / "files"
    fill(folder, files=chosen["files"], megabytes=chosen["mb"], owner=driver.owner)
    paths = sorted(folder.glob("d*/f*"))
    added, saves, tidied = [], [], []
    for step in range(chosen["steps"] + 1):
        if step:
            for number in range(CHANGED):
                path = paths[number]
                path.write_bytes(os.urandom(path.stat().st_size))
        info = sandbox.snapshot()
        added.append(info.added_bytes)
        saves.append(info.duration_s)
        with writing(task.pk) as pen:
            save_checkpoint(pen, step=None, snapshot=store_snapshot(place, info), fresh=True)
        if step % EVERY == 0 or step == chosen["steps"]:
            began = time.monotonic()
            retention.run()
            tidied.append(time.monotonic() - began)
            kept = Checkpoint.objects.filter(task=task, snapshot__dropped_at=None).count()
            stored = stored_bytes(store, driver)
            print(
                f"step {step:4}: {stored / 1024**2:7.0f} MB stored, {kept} kept; {sum(added) / 1024**2:.0f} MB without"
            )
    readable = offered = wrong = 0
    for ref, dropped_at in Checkpoint.objects.filter(task=task).values_list("snapshot__ref", "snapshot__dropped_at"):
        try:
            driver.snapshots.list(ref)
            readable += 1
            wrong += dropped_at is not None
        except Exception:  # noqa: BLE001 - whatever it is, it cannot be read
            wrong += dropped_at is None
        offered += dropped_at is None
    base, change = added[0], sum(added[1:]) / max(1, len(added) - 1)
    most = (base + kept * change) * SLACK
    figures = {
        "mb_stored": round(stored / 1024**2),
        "mb_without": round(sum(added) / 1024**2),
        "mb_at_most": round(most / 1024**2),
        "kept": kept,
        "readable": readable,
        "save_p50_s": round(sorted(saves)[len(saves) // 2], 3),
        "retention_p50_s": round(sorted(tidied)[len(tidied) // 2], 2),
        "holds": float(stored <= most and wrong == 0 and offered == readable == kept),
    }
    for name, value in figures.items():
        print(f"{name}={value}")


def stored_bytes(store: str, driver: Any) -> int:
    """What the store takes on the disk of this machine, now."""
    if store == "content":
        return sum(path.lstat().st_blocks * 512 for path in driver.store.objects.root.rglob("*"))
    subprocess.run(["btrfs", "filesystem", "sync", str(driver.store.mount)], check=True, capture_output=True)
    told = subprocess.run(
        ["btrfs", "filesystem", "df", "--raw", str(driver.store.mount)], check=True, capture_output=True, text=True
    ).stdout
    return sum(int(line.rsplit("used=", 1)[1]) for line in told.splitlines() if "GlobalReserve" not in line)


if __name__ == "__main__":
    sys.exit(main())
