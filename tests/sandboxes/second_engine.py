"""A Docker engine of the tests' own beside the machine's: started, killed, and removed with all it made."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from workspaces.sandboxes import processes
from workspaces.sandboxes.base import SandboxUnavailable
from workspaces.sandboxes.engines import connect
from workspaces.sandboxes.image import default_tag, ensure_image

START_S = 60


class SecondEngine:
    """`address` is a unix socket unless `options` name another host. Everything lies in a short temporary folder."""

    def __init__(self, *options: str, address: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="engine-"))
        self.socket = f"unix://{self.folder}/s"
        self.address = address or self.socket
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (self.folder / "pid").unlink(missing_ok=True)
        argv = ["dockerd", "--data-root", f"{self.folder}/d", "--exec-root", f"{self.folder}/x"]
        argv += ["--pidfile", f"{self.folder}/pid", "-H", self.socket, "--bridge=none", "--iptables=false"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*argv, *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        until = time.monotonic() + START_S
        while True:
            try:
                connect(self.socket).close()
                return
            except SandboxUnavailable:
                if self._process.poll() is not None or time.monotonic() > until:
                    told = (self.folder / "log").read_text(errors="replace")[-2000:]
                    raise AssertionError(f"the second Docker engine does not start: {told}") from None
                time.sleep(0.1)

    def load(self, tag: str) -> None:
        """The machine's own engine gives the image."""
        here, there = connect(), connect(self.socket)
        try:
            ensure_image(here, tag, print)
            there.images.load(here.images.get(tag).save(named=True))
        finally:
            here.close()
            there.close()

    def kill(self) -> None:
        """As a machine that loses power, but for the containers' own processes."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self._kill_containerd()

    def _kill_containerd(self) -> None:
        """dockerd starts it in a session of its own, and it outlives a killed dockerd."""
        noted = self.folder / "x/containerd/containerd.pid"
        try:
            pid = int(noted.read_text())
            if os.fsencode(self.folder) in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return
        until = time.monotonic() + 30
        while Path(f"/proc/{pid}/exe").exists() and time.monotonic() < until:
            time.sleep(0.05)
        noted.unlink(missing_ok=True)  # nobody may have reaped it, and dockerd would wait for the dead

    def _kill_shims(self) -> None:
        """And the first process of each container that they hold, which takes the others along."""
        found = {process.pid: process.parent for process in processes.everything()}
        for pid in found:
            with contextlib.suppress(OSError):
                if os.fsencode(f"{self.folder}/x") in Path(f"/proc/{pid}/cmdline").read_bytes():
                    for other in [pid, *(child for child, parent in found.items() if parent == pid)]:
                        os.kill(other, signal.SIGKILL)

    def remove(self) -> None:
        """End it, its containers and its mounts."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(SandboxUnavailable, docker.errors.DockerException):
                client = connect(self.socket)
                for container in client.containers.list(all=True):
                    container.remove(force=True)
                client.close()
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        self._kill_containerd()
        self._kill_shims()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def second_engine(*options: str, address: str = "", image: bool = True) -> Iterator[SecondEngine]:
    """Skips where none can run."""
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("a second Docker engine needs root and dockerd")
    engine = SecondEngine(*options, address=address)
    try:
        try:
            engine.start()
        except AssertionError as error:
            pytest.skip(str(error))
        if image:
            engine.load(default_tag())
        yield engine
    finally:
        engine.remove()
