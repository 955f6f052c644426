"""Runtimes: one that an engine lacks is told with those that it has; gVisor is run for real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.conftest import open_driver, sh
from tests.sandboxes.second_engine import second_engine
from tests.sandboxes.test_network import fetch, server
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import NetworkPolicy, SandboxError, SandboxLimits, SandboxSpec, SandboxUnavailable
from workspaces.sandboxes.engines import Engine

__all__ = ["server"]  # a fixture

# its own network stack does not start in every kernel; the sandbox's files are the host's; the gate's socket is outside
RUNSC_ARGUMENTS = ["--platform=systrap", "--network=none", "--overlay2=none", "--host-uds=open"]
BACKPORTS = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {} bookworm-backports main\n"


@pytest.mark.docker
def test_a_runtime_that_the_engine_lacks_is_told_with_those_that_it_has(tmp_path: Path) -> None:
    driver = open_driver("docker", "content", tmp_path)
    offered = driver.engine.facts().runtimes
    missing = next((name for name in ("kata", "runsc") if name not in offered), None)
    if missing is None:
        pytest.skip("this engine has every runtime")
    sandbox = driver.open(SandboxSpec("no-runtime", runtime=missing))
    try:
        with pytest.raises(SandboxError, match=f"runtime {missing}.*runc") as told:
            sandbox.start()
        assert not isinstance(told.value, SandboxUnavailable)  # waiting does not help
        assert told.value.hint
        assert sandbox.state() == "stopped"
    finally:
        sandbox.destroy()
        driver.close()


def runsc(folder: Path) -> Path:
    """The program: of this machine, or of Debian's backports, unpacked and not installed."""
    here = shutil.which("runsc")
    if here:
        return Path(here)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("runsc is not installed")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(BACKPORTS.format("http://deb.debian.org/debian"))
    options = [f"Dir::Etc::sourcelist={folder}/sources.list", "Dir::Etc::sourceparts=/dev/null"]
    options += [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=root"]
    command = ["apt-get", *(part for option in options for part in ("-o", option)), "-q"]
    for words in (["update"], ["download", "runsc"]):
        done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"runsc cannot be fetched: {done.stderr[-300:]}")
    subprocess.run(["dpkg", "-x", str(next(folder.glob("runsc*.deb"))), "unpacked"], cwd=folder, check=True)
    return folder / "unpacked/usr/bin/runsc"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """On an engine of this test's own, which has gVisor."""
    program = runsc(tmp_path_factory.mktemp("runsc"))
    config = tmp_path_factory.mktemp("config") / "daemon.json"
    config.write_text(json.dumps({"runtimes": {"runsc": {"path": str(program), "runtimeArgs": RUNSC_ARGUMENTS}}}))
    with second_engine("--config-file", str(config)) as engine:
        root = tmp_path_factory.mktemp("gvisor")
        driver: Any = make_driver("docker", root, store="content", engine=Engine(engine.address))
        driver.site_network = lambda: "host"  # this engine has no bridge of its own; the sandbox has no network anyhow
        yield driver
        driver.close()


@pytest.mark.docker
@pytest.mark.long
def test_a_sandbox_in_gvisor_has_a_kernel_apart_and_does_all_that_others_do(
    driver: Any, make_sandbox: Callable[..., Any], server: int
) -> None:
    assert "runsc" in driver.engine.facts().runtimes
    policy = NetworkPolicy("allowlist", (f"127.0.0.1:{server}",), ("127.0.0.1/32",))
    sandbox = make_sandbox(runtime="runsc", network=policy, limits=SandboxLimits(memory_bytes=512 * 1024 * 1024))
    inside = sh(sandbox, "cat /proc/version; uname -r").stdout.decode()
    assert os.uname().release not in inside
    assert "gvisor" in sh(sandbox, "dmesg | tr A-Z a-z").stdout.decode()
    sandbox.write("from-outside", b"x")
    assert sh(sandbox, "cat from-outside; echo kept >file; id -u").stdout == b"x" + f"{10001}\n".encode()
    assert sandbox.read("file") == b"kept\n"
    saved = sandbox.snapshot().ref
    sh(sandbox, "rm file")
    sandbox.restore(saved)
    assert sh(sandbox, "cat file").stdout == b"kept\n"
    assert sh(sandbox, "sleep 30", timeout_s=1).timed_out
    assert sh(sandbox, "echo on >>file; cat file").stdout == b"kept\non\n"
    assert sh(sandbox, "touch /etc/x").exit_code != 0
    # the way out leads through a socket of the host, since the sandbox has no network
    url = f"http://127.0.0.1:{server}/"
    program = f"import urllib.request as r; o = r.build_opener(r.ProxyHandler({{'http': 'http://127.0.0.1:3128'}})); " \
              f"print(o.open(r.Request('{url}')).read().decode())"  # fmt: skip
    got = sandbox.exec(["env", "-u", "no_proxy", "-u", "NO_PROXY", "python3", "-c", program], key="out")
    assert json.loads(got.stdout)["path"] == "/", got
    assert fetch(sandbox, "http://example.com/").startswith("403")
    assert [(c.port, c.allowed) for c in sandbox.connections(0)[0]] == [(server, True), (80, False)]
