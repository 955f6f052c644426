"""Docker engines: reached over a unix socket or TLS, asked what they have. Starts and removes nothing.

`address` is as Docker writes it: `unix:///var/run/docker.sock` or `tcp://host:2376`; empty means what DOCKER_HOST
says, or this machine's socket. `tls` is a folder with ca.pem, cert.pem and key.pem.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
import docker.errors
import docker.tls
import requests.exceptions

from workspaces.sandboxes.base import SandboxUnavailable

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
TLS_FILES = ("ca.pem", "cert.pem", "key.pem")
TIMEOUT_S = 60.0  # for one answer
FACTS_S = 10.0
_KNOCK_S = 5
_HINT = "is dockerd running, and may this user reach its socket?"
_NO_ANSWER = (requests.exceptions.ConnectionError, requests.exceptions.Timeout)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself. `memory_bytes` and `cpus` are its machine's."""

    memory_bytes: int
    cpus: int
    runtimes: tuple[str, ...]
    version: str


class Engine:
    """One engine. Connects when it is first needed; thread-safe."""

    def __init__(self, address: str = "", tls: Path | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.tls = tls
        self.timeout_s = timeout_s
        self._client: docker.DockerClient | None = None
        self._connecting = threading.Lock()

    @property
    def client(self) -> docker.DockerClient:
        """Raises SandboxUnavailable when no engine answers."""
        with self._connecting:
            if self._client is None:
                self._client = connect(self.address, self.tls, timeout_s=self.timeout_s)
            return self._client

    def facts(self) -> EngineFacts:
        """Raises SandboxUnavailable within seconds, also where somebody takes the call and says nothing.

        By a connection of its own: the shared one waits long for an answer, as a command may be worth it.
        """
        client = connect(self.address, self.tls, timeout_s=FACTS_S)
        try:
            with engine_errors():
                info = client.api.info()
        finally:
            client.close()
        return EngineFacts(
            memory_bytes=int(info.get("MemTotal", 0)),
            cpus=int(info.get("NCPU", 0)),
            runtimes=tuple(sorted(info.get("Runtimes", {}))),
            version=str(info.get("ServerVersion", "")),
        )

    def close(self) -> None:
        with self._connecting:
            if self._client is not None:
                self._client.close()
                self._client = None


def node_engine(name: str, address: str, tls_folders: str, **options: Any) -> Engine:
    """The engine of a node. One reached by tcp has its certificates in a folder of its name, if there are any."""
    secure = address.startswith("tcp://") and tls_folders
    return Engine(address, Path(tls_folders) / name if secure else None, **options)


def connect(address: str = "", tls: Path | None = None, *, timeout_s: float = TIMEOUT_S) -> docker.DockerClient:
    """Raises SandboxUnavailable when no engine answers, or when its certificate is not the one expected."""
    knock(address)
    # a pool as wide as the worker's threads: each waits for its own answer
    options: dict[str, Any] = {"timeout": timeout_s, "max_pool_size": 64}
    with engine_errors():
        if not address:
            return docker.from_env(**options)
        client = docker.DockerClient.__new__(docker.DockerClient)  # which is no more than its `api`
        client.api = _Direct(base_url=address, tls=_tls(tls), version="auto", **options)
        return client


class _Direct(docker.APIClient):
    """Takes neither a proxy nor other authorities from the environment: those are for the world outside."""

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except BaseException:
            self.close()  # it asks for the engine's version, and leaves the socket open when there is no answer
            raise

    @property
    def trust_env(self) -> bool:
        return False

    @trust_env.setter
    def trust_env(self, value: bool) -> None: ...


def _tls(folder: Path | None) -> docker.tls.TLSConfig | bool:
    if folder is None:
        return False
    ca, certificate, key = (folder / name for name in TLS_FILES)
    for path in (ca, certificate, key):
        if not os.access(path, os.R_OK):
            raise SandboxUnavailable(f"{path} cannot be read", hint=f"the folder holds {', '.join(TLS_FILES)}")
    return docker.tls.TLSConfig(ca_cert=str(ca), client_cert=(str(certificate), str(key)), verify=True)


def knock(address: str) -> None:
    """Try the engine's door first: the client library waits long, or leaves a socket open, where nobody answers."""
    host = address or os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS
    parts = urlsplit(host)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as knocking:
                knocking.settimeout(_KNOCK_S)
                knocking.connect(host.removeprefix("unix://"))
        elif parts.scheme == "tcp":
            socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_KNOCK_S).close()
    except OSError as error:
        raise SandboxUnavailable(f"the Docker engine: {host}: {error.strerror or error}", hint=_HINT) from None


@contextlib.contextmanager
def engine_errors() -> Iterator[None]:
    """What the client library raises, as SandboxUnavailable. A NotFound that means something is caught inside."""
    try:
        yield
    except (docker.errors.DockerException, *_NO_ANSWER) as error:
        text = str(getattr(error, "explanation", None) or error)[:300]
        raise SandboxUnavailable(f"the Docker engine: {text}", hint=_HINT) from None
