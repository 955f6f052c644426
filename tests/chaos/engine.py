"""A Docker engine of the suite's own, beside the machine's: it may be killed. The machine's own is only read from."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import docker
import docker.errors
import requests.exceptions

from agentdesk.embedded.process import birth, leashed, wait_until_gone

STARTS_WITHIN_S = 60.0


class Engine:
    """`folder` holds everything of it, also its containerd's; it runs in a network of its own, so it touches none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._forget_the_killed()
        with (self.folder / "dockerd.log").open("ab") as log:
            self._process = subprocess.Popen(
                leashed(
                    [
                        *("unshare", "--net", "--"),  # an engine without a bridge deletes the machine's docker0
                        *(
                            "dockerd",
                            "--data-root",
                            str(self.folder / "data"),
                            "--exec-root",
                            str(self.folder / "exec"),
                        ),
                        *("--pidfile", str(self.folder / "docker.pid"), "-H", self.url),
                        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
                    ],
                    signal.SIGTERM,
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("AGENTDESK_")},
            )
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self.answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"the engine does not start: see {self.folder}/dockerd.log")
            time.sleep(0.1)

    def _forget_the_killed(self) -> None:
        """Its containerd dies with it; where nobody reaps it, dockerd would take the dead one for a running one."""
        for name in ("docker.pid", "exec/containerd/containerd.pid"):
            path = self.folder / name
            with contextlib.suppress(FileNotFoundError, ValueError):
                pid = int(path.read_text())
                wait_until_gone(pid, birth(pid), 10)
                path.unlink()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self._process.poll() is None else None

    def answers(self) -> bool:
        with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException):
            client = docker.DockerClient(base_url=self.url, timeout=5)
            try:
                return bool(client.ping())
            finally:
                client.close()
        return False

    def bring(self, image: str) -> None:
        """Copy an image from the machine's engine, unless it is here."""
        known = subprocess.run(["docker", "-H", self.url, "image", "inspect", image], capture_output=True)
        if known.returncode == 0:
            return
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saving:
            subprocess.run(
                ["docker", "-H", self.url, "load", "-q"], stdin=saving.stdout, check=True, capture_output=True
            )
        if saving.returncode:
            raise RuntimeError(f"the image {image} could not be copied")

    def containers(self) -> list[str]:
        """Ids of those that run, in the order of their names."""
        client = docker.DockerClient(base_url=self.url, timeout=30)
        try:
            found = client.api.containers()
        finally:
            client.close()
        return [container["Id"] for container in sorted(found, key=lambda container: container["Names"])]

    def kill_container(self, container: str) -> None:
        client = docker.DockerClient(base_url=self.url, timeout=30)
        try:
            client.api.kill(container)
        finally:
            client.close()

    def remove_all(self) -> None:
        client = docker.DockerClient(base_url=self.url, timeout=60)
        try:
            for container in client.api.containers(all=True):
                with contextlib.suppress(docker.errors.APIError):
                    client.api.remove_container(container["Id"], force=True)
        finally:
            client.close()

    def kill(self) -> None:
        """dockerd alone; its containers live on until the next start finds them."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it with its containers and all that it started; its images stay for the next start."""
        if self._process is not None:
            with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException):
                self.remove_all()
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Give the room back."""
        for mount in self._mounts():
            subprocess.run(["umount", "-l", mount], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _left(self) -> list[int]:
        """containerd and shims of this very engine: its folder is on their command lines."""
        ours = os.fsencode(self.folder) + b"/"
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = entry.read_bytes()
                if ours in words and words.split(b"\0")[0].rpartition(b"/")[2].startswith((b"containerd", b"docker")):
                    found.append(int(entry.parent.name))
        return found

    def _mounts(self) -> list[str]:
        lines = Path("/proc/mounts").read_text().splitlines()
        return sorted((at for line in lines if (at := line.split()[1]).startswith(f"{self.folder}/")), reverse=True)
