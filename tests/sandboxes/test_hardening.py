"""The Docker sandbox seen from inside: what an agent, however hostile, does not get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sandboxes.conftest import sh
from workspaces.sandboxes.base import SandboxError, SandboxLimits, SandboxSpec, SandboxUnavailable

pytestmark = pytest.mark.docker


@pytest.fixture(autouse=True)
def only_docker(driver: Any) -> None:
    if driver.name != "docker":
        pytest.skip("the local driver isolates nothing, and says so")


def test_no_network(shell: Any) -> None:
    assert shell("ls /sys/class/net").stdout.split() == [b"lo"]
    reach = "import socket; socket.create_connection(('1.1.1.1', 53), 3)"
    result = shell(f'python3 -c "{reach}"')
    assert result.exit_code == 1
    assert b"unreachable" in result.stderr


def test_no_privileges(shell: Any) -> None:
    status = dict(line.split(b":\t", 1) for line in shell("cat /proc/self/status").stdout.splitlines())
    assert status[b"Uid"].split()[0] != b"0"
    assert {status[name] for name in (b"CapEff", b"CapPrm", b"CapBnd", b"CapInh")} == {b"0" * 16}
    assert status[b"NoNewPrivs"] == b"1"
    assert status[b"Seccomp"] == b"2"


def test_the_root_is_read_only_and_only_the_disk_stays(sandbox: Any, shell: Any) -> None:
    for place in ("/etc/x", "/usr/bin/x", "/x", "/run/agentdesk/requests/x", "/run/agentdesk/requests/exec.sh"):
        assert shell(f"echo x >>{place}").exit_code != 0
    assert shell("echo 'echo ran' >/tmp/x; chmod +x /tmp/x; /tmp/x; echo x >~/x; echo x >x").stdout == b"ran\n"
    sandbox.stop()
    sandbox.start()
    assert shell("ls -A /tmp ~ /workspace | grep -c x").stdout == b"2\n"


def test_a_setuid_program_gives_nothing(shell: Any) -> None:
    assert shell("cp /usr/bin/id ./id; chmod 4755 id; ./id -u").stdout != b"0\n"
    assert shell("su -c id root </dev/null; mount -t tmpfs x /workspace").exit_code != 0


def test_memory_is_limited_and_the_sandbox_survives_it(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(memory_bytes=64 * 1024 * 1024))
    result = sh(sandbox, "python3 -c 'x = bytearray(300_000_000); print(len(x))'")
    assert result.exit_code == 137
    assert sh(sandbox, "echo alive").stdout == b"alive\n"
    assert sh(sandbox, "echo here >>/tmp/a").exit_code == 0


def test_processes_are_limited(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(pids=40))
    result = sh(sandbox, "for i in $(seq 100); do sleep 20 & done; wait", key="many", timeout_s=5)
    assert result.exit_code != 0
    assert b"fork" in result.stderr
    cramped = sh(sandbox, "echo cramped")
    assert b"processes" in cramped.stderr
    sandbox.kill("many")
    assert sh(sandbox, "echo alive").stdout == b"alive\n"


def test_cpu_is_limited(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(cpus=0.3))
    sh(sandbox, "timeout 2 sh -c 'while :; do :; done'")
    assert 0.2 < sandbox.usage().cpu_s < 1.2


def test_disk_is_limited_where_the_store_can(driver: Any, make_sandbox: Callable[..., Any]) -> None:
    if not driver.store.limits_disk:
        pytest.skip("the content-addressed store cannot limit a disk, and says so")
    sandbox = make_sandbox(limits=SandboxLimits(disk_bytes=20_000_000))
    saved = sandbox.snapshot().ref
    for _ in range(2):  # the limit holds for a restored disk too
        result = sh(sandbox, "dd if=/dev/urandom of=big bs=1M count=60 conv=fsync")
        assert result.exit_code == 1
        assert b"quota" in result.stderr
        with pytest.raises(SandboxError, match="no room"):
            sandbox.write("more", bytes(30_000_000))
        sandbox.restore(saved)
    assert sh(sandbox, "echo fits >small && cat small").stdout == b"fits\n"


def test_output_of_commands_cannot_fill_the_host(driver: Any, sandbox: Any, shell: Any) -> None:
    if not driver.store.limits_disk:
        pytest.skip("the content-addressed store cannot limit a folder")
    assert shell("head -c 900000000 /dev/zero >/run/agentdesk/claims/junk", timeout_s=120).exit_code != 0


def test_usage_is_told(shell: Any, sandbox: Any) -> None:
    shell("head -c 5000000 /dev/urandom >file; sync")
    usage = sandbox.usage()
    assert usage.cpu_s > 0
    assert usage.memory_bytes > 0
    assert usage.disk_bytes >= 5_000_000


def test_a_container_of_somebody_else_is_never_touched(driver: Any, sandbox: Any) -> None:
    name = sandbox.container_name
    sandbox.stop()
    image = driver.client.images.get(driver.image).id
    foreign = driver.client.containers.create(image, ["sleep", "60"], name=name, network_mode="none")
    try:
        with pytest.raises(SandboxUnavailable, match="not ours"):
            sandbox.start()
        assert driver.client.containers.get(name).id == foreign.id
    finally:
        foreign.remove(force=True)


def test_a_missing_image_is_told_with_what_to_do(driver: Any) -> None:
    sandbox = driver.open(SandboxSpec("no-image", image="agentdesk-sandbox:not-there"))
    try:
        with pytest.raises(SandboxUnavailable, match="missing") as told:
            sandbox.start()
        assert told.value.hint
    finally:
        sandbox.destroy()


def test_a_container_that_died_is_started_anew(driver: Any, sandbox: Any, shell: Any) -> None:
    shell("echo kept >file")
    driver.client.containers.get(sandbox.container_name).kill()
    assert sandbox.state() == "stopped"
    sandbox.start()
    assert shell("cat file").stdout == b"kept\n"
