"""The Docker driver: one hardened container a workspace. Touches no container but those it labelled.

- Signals come from outside (the host's /proc) where this host is the engine's: a frozen command is killed
  without being thawed, and dies at its thaw before an instruction of its own. Where they cannot (a remote
  engine, another user's processes), the container is thawed, killed inside, and frozen again.
- A restore removes the container, because a bind mount would go on showing the old disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import docker.types

from workspaces.domain.isolation import engine_runtime
from workspaces.sandboxes import counters, processes, way_out
from workspaces.sandboxes.base import (
    Connections,
    Machines,
    MachineUsage,
    SandboxError,
    SandboxGone,
    SandboxSpec,
    SandboxUnavailable,
    SandboxUsage,
    SnapshotStore,
    State,
    StdioProcess,
)
from workspaces.sandboxes.counters import Ended
from workspaces.sandboxes.disk_sandbox import DiskSandbox
from workspaces.sandboxes.engines import Engine, engine_errors
from workspaces.sandboxes.execution import Folders, Liveness
from workspaces.sandboxes.image import default_tag
from workspaces.sandboxes.snapshots.base import DiskStore
from workspaces.sandboxes.snapshots.choose import choose_store
from workspaces.sandboxes.stdio import AttachedProcess
from workspaces.sandboxes.way_out import WayOut

SANDBOX_UID = 10001
WORKSPACE, HOME, CONTROL = "/workspace", "/home/agent", "/run/agentdesk"
LABEL, SITE_LABEL = "agentdesk.sandbox", "agentdesk.site"
_TMP_BYTES = 256 * 1024 * 1024
_PIDS_OF_A_KERNEL = 4096
_IDLE_PIDS = 2  # the init and its sleep; beside them a list's gate
_SHM_BYTES = 64 * 1024 * 1024
# the host's core_pattern may name a program of the host: no crash inside may start it
_ULIMITS = [docker.types.Ulimit(name="core", soft=0, hard=0)]
_ENVIRONMENT = {
    "HOME": HOME,
    "USER": "agent",
    "LANG": "C.UTF-8",
    "PATH": f"{HOME}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONUSERBASE": f"{HOME}/.local",
    "PIP_USER": "1",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "npm_config_prefix": f"{HOME}/.local",
    "CARGO_HOME": f"{HOME}/.cargo",
    "GOPATH": f"{HOME}/go",
}


class DockerDriver:
    """`root` holds disks and snapshots; `store` is `auto`, `btrfs` or `content`. One a process and engine, thread-safe.

    Drivers of several engines may share a root, if every engine's machine sees it at the same path.
    """

    name = "docker"
    isolated = True

    def __init__(
        self,
        root: Path,
        image: str = "",
        *,
        store: str = "auto",
        btrfs_size_bytes: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.root = root.resolve()
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.image = image or default_tag()
        # root's files would be the host's root's: the sandbox gets a user that is nobody here
        self.owner = (SANDBOX_UID, SANDBOX_UID) if os.geteuid() == 0 else None
        self.user = f"{SANDBOX_UID}:{SANDBOX_UID}" if self.owner else f"{os.geteuid()}:{os.getegid()}"
        self.store: DiskStore
        self.store, self.store_reason = choose_store(self.root, self.owner, store, btrfs_size_bytes)
        self.engine = engine or Engine()

    @property
    def client(self) -> docker.DockerClient:
        return self.engine.client

    @property
    def snapshots(self) -> SnapshotStore:
        return self.store

    def check(self) -> None:
        with engine_errors():
            self.client.ping()
            try:
                self.client.images.get(self.image)
            except docker.errors.ImageNotFound:
                raise _no_image(self.image) from None

    def runtime(self, wanted: str) -> str:
        """The engine's name for a runtime. Raises SandboxError, with what it has, when it has no such one."""
        if wanted == "runc":
            return wanted
        offered = self.engine.facts().runtimes
        name = engine_runtime(wanted, offered)
        if name is None:
            raise SandboxError(
                f"this engine does not offer the runtime {wanted}; it has {', '.join(offered)}",
                hint="install it and name it in the engine's daemon.json, or choose another on the workspace's page",
            )
        return name

    def open(self, spec: SandboxSpec) -> DockerSandbox:
        sandbox = DockerSandbox(spec, self)
        if not self.store.exists(spec.key):
            self.store.open(spec.key, spec.limits.disk_bytes)
        return sandbox

    @property
    def site(self) -> str:
        """Two installations on one engine may use the same keys."""
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:8]

    def site_network(self) -> str:
        return way_out.site_network(self.client, f"agentdesk-out-{self.site}", self.root / "network.lock")

    def awake(self) -> list[str]:
        with engine_errors():
            found = self.client.api.containers(filters={"label": [f"{SITE_LABEL}={self.site}", LABEL]})
        return sorted(container["Labels"][LABEL] for container in found)

    def detach(self) -> None:
        self.store.detach()

    def close(self) -> None:
        self.store.close()
        self.engine.close()


def _no_image(image: str) -> SandboxUnavailable:
    return SandboxUnavailable(f"the sandbox image {image} is missing", hint="build it: make sandbox-image")


class DockerSandbox(DiskSandbox):
    def __init__(self, spec: SandboxSpec, driver: DockerDriver) -> None:
        super().__init__(spec, driver.root, driver.store, driver.owner)
        self._driver = driver
        self.container_name = f"agentdesk-{spec.key}-{driver.site}"
        self._image = spec.image or driver.image
        self._ended = Ended(self._own / "ended.json")
        labels = {way_out.EGRESS_LABEL: spec.key, SITE_LABEL: driver.site}
        self._way_out = WayOut(self._own / "egress", self.container_name, labels, bool(driver.owner))

    @property
    def _api(self) -> Any:
        return self._driver.client.api

    def state(self) -> State:
        status = self._inspect().get("State", {})
        if status.get("Paused"):
            return "frozen"
        if status.get("Running"):
            return "running"
        return "stopped" if status or self._store.exists(self._spec.key) else "absent"

    def usage(self) -> SandboxUsage:
        cpu = memory = None
        if self.state() in ("running", "frozen"):
            with contextlib.suppress(docker.errors.APIError), engine_errors():
                stats = self._api.stats(self.container_name, stream=False, one_shot=True)
                cpu = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0) / 1e9
                memory = counters.held_bytes(stats)
        exists = self._store.exists(self._spec.key)
        return SandboxUsage(cpu, memory, self._store.used_bytes(self._spec.key) if exists else None)

    def machines(self) -> Machines | None:
        ended = self._ended.all()  # first: what is removed meanwhile is then in neither, and in the next reading
        running = self._counters(self._inspect())
        return ended + ([running] if running is not None else [])

    def _counters(self, found: dict[str, Any]) -> MachineUsage | None:
        """Of the container as it was looked at; None when it does not run."""
        state = found.get("State", {})
        if not state.get("Running"):
            return None
        at_hand = counters.read(found["Id"], int(state.get("Pid") or 0))
        if at_hand is not None:
            return at_hand
        with contextlib.suppress(docker.errors.APIError), engine_errors():
            stats = self._api.stats(found["Id"], stream=False, one_shot=True)
            return counters.from_stats(found["Id"], stats, state["StartedAt"])
        return None

    # --- life

    def _inspect(self) -> dict[str, Any]:
        with engine_errors():
            try:
                found: dict[str, Any] = self._api.inspect_container(self.container_name)
            except docker.errors.NotFound:
                return {}
        return found

    def _start(self) -> None:
        self._remove()
        limits, folders = self._spec.limits, self._folders()
        disk = self._disk()
        memory = limits.memory_bytes
        runtime = self._driver.runtime(self._spec.runtime)
        # gVisor's own threads count against the limit: below a thousand or so it kills itself
        pids = limits.pids if runtime == "runc" else max(limits.pids, _PIDS_OF_A_KERNEL)

        def bind(source: Path, target: str, read_only: bool = False) -> Any:
            return docker.types.Mount(target, str(source), type="bind", read_only=read_only)

        network = self._spec.network
        environment, out = _ENVIRONMENT, "none"
        if network.mode != "none":
            with engine_errors():
                out = self._driver.site_network()
        mounts = [
            bind(disk / "files", WORKSPACE),
            bind(disk / "home", HOME),
            bind(folders.requests, folders.inside_requests, read_only=True),
            bind(folders.claims, folders.inside_claims),
        ]
        if network.mode == "allowlist":
            self._way_out.open(self._driver.client, self._image, out, network)
            environment, out = _ENVIRONMENT | way_out.ENVIRONMENT, "none"
            mounts += self._way_out.mounts()
            pids += 2
        with engine_errors():
            try:
                self._driver.client.containers.create(
                    self._image,
                    ["sleep", "infinity"],
                    entrypoint=[],
                    name=self.container_name,
                    hostname="sandbox",
                    labels={LABEL: self._spec.key, SITE_LABEL: self._driver.site},
                    user=self._driver.user,
                    environment=environment,
                    working_dir=WORKSPACE,
                    mounts=mounts,
                    network_mode=out,
                    cap_drop=["ALL"],
                    security_opt=["no-new-privileges:true"],
                    read_only=True,
                    # both hold memory that nobody can be killed for: full, they must leave room for processes
                    tmpfs={"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={min(_TMP_BYTES, memory // 2)}"},  # noqa: S108
                    shm_size=min(_SHM_BYTES, memory // 8),
                    init=True,
                    pids_limit=pids,
                    ulimits=_ULIMITS,
                    mem_limit=memory,
                    memswap_limit=memory,
                    nano_cpus=int(limits.cpus * 1e9),
                    runtime=runtime,
                    log_config=docker.types.LogConfig(type="none"),
                )
                self._api.start(self.container_name)
            except docker.errors.ImageNotFound:
                raise _no_image(self._image) from None
        if network.mode == "allowlist":
            self._way_out.open_gate(self._api, self.container_name)

    def _stop(self) -> None:
        self._remove()

    def connections(self, after: int) -> tuple[Connections, int]:
        return self._way_out.connections(after)

    def _remove(self) -> None:
        self._way_out.close(self._api)
        found = self._inspect()
        labels = found.get("Config", {}).get("Labels")
        if labels is None:
            return
        if labels.get(LABEL) != self._spec.key:
            raise SandboxUnavailable(f"the container {self.container_name} is not ours")
        last = self._counters(found)
        if last is not None:
            self._ended.add(replace(last, runs=False))
        with engine_errors(), contextlib.suppress(docker.errors.NotFound):
            self._api.remove_container(self.container_name, force=True)

    def _halt(self) -> None:
        self._toggle(self._api.pause)

    def _go_on(self) -> None:
        self._toggle(self._api.unpause)

    def _toggle(self, order: Any) -> None:
        with engine_errors():
            try:
                order(self.container_name)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                # already so, or not running: `state` says which, and nothing is left to be done
                if error.status_code not in (304, 409) and "not paused" not in str(error):
                    raise

    def _is_idle(self) -> bool:
        """By the count of processes on the engine's machine: a kernel of its own hides what it runs."""
        listed = self._spec.network.mode == "allowlist"
        if self._spec.runtime != "runc" or (listed and not self._driver.owner):
            return False  # a gate of the agent's own user may have been ended, and something else counted for it
        with engine_errors():
            try:
                # 15 ms; the engine's `stats` waits for its next sample, up to a second
                found = self._api.top(self.container_name, ps_args="-eo pid")
            except docker.errors.NotFound:
                return True
            except docker.errors.APIError:  # it does not run, or is just being removed, or the engine has no ps
                return self.state() not in ("running", "frozen")
        return len(found["Processes"] or []) <= _IDLE_PIDS + listed

    # --- commands

    def _folders(self) -> Folders:
        return Folders(
            self._own / "requests",
            self._store.claims(self._spec.key),
            f"{CONTROL}/requests",
            f"{CONTROL}/claims",
            self._owner,
        )

    def _inside(self) -> str:
        return WORKSPACE

    def _attach(self, argv: list[str], env: dict[str, str], cwd: str, kill: Callable[[], None]) -> StdioProcess:
        try:
            with engine_errors():
                made = self._api.exec_create(self.container_name, argv, stdin=True, environment=env, workdir=cwd)
                return AttachedProcess(self._api.exec_start(made["Id"], socket=True), kill)
        except docker.errors.APIError as error:
            raise SandboxUnavailable(f"the program cannot be started: {error.explanation or error}") from None

    def launch(self, arguments: list[str], record: Path) -> None:
        try:
            with engine_errors():
                made = self._api.exec_create(self.container_name, arguments, stdout=False, stderr=False)
                record.write_text(json.dumps({"exec": made["Id"]}))
                self._api.exec_start(made["Id"], detach=True)
        except SandboxUnavailable:
            if self.state() not in ("running", "frozen"):
                raise SandboxGone("the sandbox went away before the command started") from None
            raise

    def look(self, record: Path | None) -> tuple[Liveness, int | None]:
        if self.state() not in ("running", "frozen"):
            return "gone", None
        if record is None:
            return "runs", None
        with engine_errors():
            try:
                seen = self._api.exec_inspect(json.loads(record.read_text())["exec"])
            except (docker.errors.NotFound, FileNotFoundError, ValueError, KeyError):
                return "gone", None
        if seen.get("Running"):
            return "runs", None
        # an exec that was made and never started (its caller died between) has no exit code
        return "ended", seen.get("ExitCode")

    def kill_command(self, marker: str, group: int | None) -> None:
        state = self.state()
        if state not in ("running", "frozen"):
            return
        if self._kill_from_outside(marker, group):
            return
        if state == "frozen":
            self._go_on()
        try:
            self._kill_inside(marker, group)
        finally:
            if state == "frozen":
                self._halt()

    def _kill_from_outside(self, marker: str, group: int | None) -> bool:
        container = str(self._inspect().get("Id", ""))
        with engine_errors():
            try:
                top = self._api.top(self.container_name, ps_args="-o pid")
            except docker.errors.APIError:
                return False
        column = top["Titles"].index("PID")
        first = processes.look(int(top["Processes"][0][column])) if top["Processes"] else None
        if not container or first is None or container not in first.cgroup:
            return False  # another host's numbers: signalling them here would hit somebody else

        def find() -> list[int]:
            mine = [p for p in processes.everything() if container in p.cgroup]
            return processes.family(mine, marker.encode(), group)

        return processes.kill_all(find)

    def _kill_inside(self, marker: str, group: int | None) -> None:
        # the runner itself does not carry the marker, so it lives to write the exit code down
        script = (
            'for i in 1 2 3; do for p in /proc/[0-9]*; do if tr "\\0" "\\n" <"$p/environ" 2>/dev/null '
            '| grep -qxF "$1"; then kill -9 "${p#/proc/}" 2>/dev/null; fi; done; done; '
            '[ -z "$2" ] || kill -9 -- "-$2" 2>/dev/null; true'
        )
        arguments = ["/bin/sh", "-c", script, "sh", marker, str(group or "")]
        with engine_errors():
            made = self._api.exec_create(self.container_name, arguments)
            self._api.exec_start(made["Id"])
