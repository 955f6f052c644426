"""The driver's side of an allow-list: the proxy's container, the folders that it shares with the host, its log.

The sandbox itself has no network. Inside it a gate listens on a local port and hands everything to the proxy's unix
socket, so there is no address, no route and no name server to get around the list by.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import docker.types

from workspaces.sandboxes import egress
from workspaces.sandboxes.base import Connection, NetworkPolicy, SandboxUnavailable
from workspaces.sandboxes.engines import engine_errors
from workspaces.sandboxes.snapshots.base import locked

PORT = 3128
INSIDE = "/run/agentdesk/egress"
EGRESS_LABEL = "agentdesk.egress"
PROXY_UID, GATE_UID = 10003, 10002  # neither can be signalled by the agent's own user
ADDRESS = f"http://127.0.0.1:{PORT}"
ENVIRONMENT = {
    **{name: ADDRESS for word in ("http_proxy", "https_proxy") for name in (word, word.upper())},
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1"),
}
_START_S = 30
_READ_BYTES = 4 * egress.SEGMENT_BYTES
_SCRIPT = "egress.py"


class WayOut:
    """Of one sandbox. `folder` is the host's alone, but for what the proxy writes into `log` and `door`."""

    def __init__(self, folder: Path, name: str, labels: dict[str, str], owned: bool) -> None:
        self.folder = folder
        self.name = f"{name}-egress"
        self.labels = labels
        self.owned = owned

    def open(self, client: docker.DockerClient, image: str, network: str, policy: NetworkPolicy) -> None:
        """Start the proxy and wait until it answers. Raises SandboxUnavailable."""
        self._prepare(policy)
        proxy = f"{PROXY_UID}:{PROXY_UID}" if self.owned else f"{os.geteuid()}:{os.getegid()}"
        inside = "/run/egress"
        mounts = [
            docker.types.Mount(f"{inside}/{name}", str(self.folder / name), type="bind", read_only=read_only)
            for name, read_only in (("script", True), ("policy", True), ("door", False), ("log", False))
        ]
        with engine_errors():
            client.containers.create(
                image,
                ["python3", "-I", "-B", f"{inside}/script/{_SCRIPT}", "proxy", inside],
                entrypoint=[],
                name=self.name,
                hostname="egress",
                labels=self.labels,
                user=proxy,
                mounts=mounts,
                network=network,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                read_only=True,
                init=True,
                pids_limit=64,
                mem_limit=128 * 1024 * 1024,
                memswap_limit=128 * 1024 * 1024,
                log_config=docker.types.LogConfig(type="none"),
                restart_policy={"Name": "on-failure", "MaximumRetryCount": 3},
            )
            client.api.start(self.name)
        until = time.monotonic() + _START_S
        while not (self.folder / "door" / "s").exists():
            if time.monotonic() > until:
                raise SandboxUnavailable("the sandbox's proxy did not start", hint="does the engine have a bridge?")
            time.sleep(0.01)

    def mounts(self) -> list[Any]:
        """What the sandbox gets to see: the script, and the door without the right to change it."""
        return [
            docker.types.Mount(f"{INSIDE}/{name}", str(self.folder / name), type="bind", read_only=True)
            for name in ("script", "door")
        ]

    def open_gate(self, api: Any, container: str) -> None:
        """Start the gate in the running sandbox and wait until it listens."""
        argv = ["python3", "-I", "-B", f"{INSIDE}/script/{_SCRIPT}", "gate", f"{INSIDE}/door/s", str(PORT)]
        user = f"{GATE_UID}:{GATE_UID}" if self.owned else ""
        with engine_errors():
            made = api.exec_create(container, argv, user=user, stderr=False)
            said = api.exec_start(made["Id"], stream=True)
            try:
                if next(iter(said), b"") != b"ready\n":
                    raise SandboxUnavailable("the sandbox's way to its proxy did not open")
            finally:
                with contextlib.suppress(AttributeError):
                    said._response.close()

    def close(self, api: Any) -> None:
        """Remove the proxy. Its log stays, to be read."""
        if self.folder.exists():
            with engine_errors(), contextlib.suppress(docker.errors.NotFound):
                api.remove_container(self.name, force=True)

    def _prepare(self, policy: NetworkPolicy) -> None:
        shutil.rmtree(self.folder / "door", ignore_errors=True)
        for name in ("script", "policy", "door", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            (self.folder / name).chmod(0o755)
            if self.owned and name in ("door", "log"):
                os.chown(self.folder / name, PROXY_UID, PROXY_UID)
        said = json.dumps({"allow": policy.allow, "reachable": policy.reachable})
        for path, text in (
            (self.folder / "script" / _SCRIPT, Path(egress.__file__).read_text()),
            (self.folder / "policy" / "policy.json", said),
        ):
            path.write_text(text)
            path.chmod(0o644)

    def connections(self, after: int) -> tuple[list[Connection], int]:
        """See Sandbox.connections. A position is the file's number and how far it is read."""
        number, offset = after >> 32, after & 0xFFFFFFFF
        found: list[Connection] = []
        read = 0
        for path in sorted((self.folder / "log").glob("*.jsonl")):
            at = int(path.stem)
            if at < number:
                path.unlink(missing_ok=True)
                continue
            with path.open("rb") as file:
                file.seek(offset if at == number else 0)
                whole, newline, _ = file.read(max(0, _READ_BYTES - read)).rpartition(b"\n")
            number, offset = at, (offset if at == number else 0) + len(whole) + len(newline)
            read += len(whole)
            found += _lines(whole)
        return found, (number << 32) | offset


def _lines(text: bytes) -> Iterator[Connection]:
    for line in text.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            yield Connection(
                at=float(said["at"]),
                host=str(said["host"]),
                port=int(said["port"]),
                allowed=said["allowed"] is True,
                address=str(said.get("address", "")),
                why=str(said.get("why", "")),
            )


def site_network(client: docker.DockerClient, name: str, lock: Path) -> str:
    """The bridge of an installation's proxies and open sandboxes, on which none reaches another. Made once."""
    with engine_errors(), locked(lock):
        if not any(network.name == name for network in client.networks.list(names=[name])):
            client.networks.create(name, driver="bridge", options={"com.docker.network.bridge.enable_icc": "false"})
    return name
