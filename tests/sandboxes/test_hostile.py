"""Attempts to break each limit from inside a Docker sandbox, and what is left usable afterwards."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.conftest import open_driver, sh
from workspaces.sandboxes.base import PathRefused, SandboxError, SandboxGone, SandboxLimits, SandboxSpec

pytestmark = pytest.mark.docker

MB = 1024 * 1024
TRY = """
import json, sys
found = {}
for path in sys.argv[1:]:
    try:
        with open(path, "r+b", buffering=0) as file:
            file.write(b"1")
        found[path] = "written"
    except OSError as error:
        found[path] = error.strerror
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_driver("docker", "auto", tmp_path_factory.mktemp("hostile"))
    yield driver
    driver.close()


def python(sandbox: Any, program: str, *arguments: str, **more: Any) -> Any:
    return sandbox.exec(["python3", "-c", program, *arguments], key=f"p{hash((program, arguments))}", **more)


def usable(sandbox: Any) -> None:
    assert sh(sandbox, "echo yes >probe && cat probe && rm probe", timeout_s=60).stdout == b"yes\n"


def test_memory_in_any_form_ends_at_the_limit(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(memory_bytes=96 * MB))
    hogs = {
        "one process": "python3 -c 'x = bytearray(400_000_000)'",
        "many processes": "for i in 1 2 3 4; do python3 -c 'import time; x = b\"1\" * 60_000_000; time.sleep(1)' & "
        'p="$p $!"; done; c=0; for i in $p; do wait $i || c=$?; done; exit $c',
        "files in memory": "head -c 240000000 /dev/zero >/tmp/a",
        "shared memory": "head -c 240000000 /dev/zero >/dev/shm/a",
    }
    for name, line in hogs.items():
        done = sh(sandbox, line, timeout_s=60)
        assert done.exit_code not in (0, None), name
        assert sandbox.usage().memory_bytes <= 96 * MB, name
    usable(sandbox)  # with both file systems in memory full


def test_a_fork_bomb_is_held_and_can_be_ended_from_outside(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(pids=60))
    bomb = "bomb() { bomb | bomb & }; bomb; wait; while :; do sleep 1; done"
    done = sh(sandbox, bomb, key="bomb", timeout_s=3)
    assert done.timed_out or done.exit_code != 0
    sandbox.kill("bomb")
    sandbox.stop()  # whatever the bomb left, this ends
    sandbox.start()
    usable(sandbox)


def test_a_busy_loop_on_every_core_gets_its_share_and_no_more(make_sandbox: Callable[..., Any]) -> None:
    sandbox = make_sandbox(limits=SandboxLimits(cpus=0.25))
    # measured inside by the wall clock, so that a slow machine only makes the share smaller
    spin = (
        "import os, time\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        end = time.monotonic() + 2\n"
        "        while time.monotonic() < end: pass\n"
        "        os._exit(0)\n"
        "began = time.monotonic()\n"
        "for _ in range(3): os.wait()\n"
        "t = os.times(); print((t.children_user + t.children_system) / (time.monotonic() - began))\n"
    )
    share = float(python(sandbox, spin, timeout_s=60).stdout)
    assert 0.01 < share < 0.6


def test_a_full_disk_is_told_and_is_usable_again_after_deleting(driver: Any, make_sandbox: Callable[..., Any]) -> None:
    if not driver.store.limits_disk:
        pytest.skip("the content-addressed store cannot limit a disk, and says so")
    sandbox = make_sandbox(limits=SandboxLimits(disk_bytes=40 * MB))
    saved = sandbox.snapshot().ref
    for what in (
        "head -c 200000000 /dev/urandom >big; sync",
        "for i in $(seq 4000); do head -c 20000 /dev/urandom >s$i || exit 1; done",
    ):
        full = sh(
            sandbox,
            f"mkdir -p d; cd d; {what}; echo more >>x; head -c 9000000 /dev/urandom >>x && sync x",
            timeout_s=120,
        )
        assert full.exit_code != 0
        assert b"quota" in full.stderr or b"space" in full.stderr
        assert sandbox.usage().disk_bytes <= 48 * MB
        freed = sh(
            sandbox, "rm -rf d && sync && head -c 5000000 /dev/urandom >again && sync again && rm again", timeout_s=120
        )
        assert freed.exit_code == 0, freed.stderr
        usable(sandbox)
    sandbox.snapshot()
    sandbox.restore(saved)
    usable(sandbox)


def test_a_flood_of_output_blocks_nothing_and_is_cut(sandbox: Any) -> None:
    flood = sh(sandbox, "yes | head -c 9000000; yes >&2", timeout_s=6, output_limit_bytes=MB)
    assert flood.timed_out
    assert (flood.stdout_truncated, flood.stderr_truncated) == (True, True)
    assert len(flood.stdout) <= MB
    assert len(flood.stderr) <= MB
    usable(sandbox)


def test_a_port_opened_inside_is_reached_from_nowhere_else(sandbox: Any, make_sandbox: Callable[..., Any]) -> None:
    serve = (
        "import socket, threading\n"
        "s = socket.create_server(('0.0.0.0', 8765))\n"
        "open('listening', 'w').close()\n"
        "while True: s.accept()[0].close()\n"
    )

    def listen() -> None:
        with contextlib.suppress(SandboxGone):
            python(sandbox, serve)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        knock = "import socket; socket.create_connection(('127.0.0.1', 8765), 2); print('in')"
        inside = sh(sandbox, f'until [ -e listening ]; do sleep 0.1; done; python3 -c "{knock}"', timeout_s=30)
        assert inside.stdout == b"in\n"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", 8765), 2)
        assert b"refused" in sh(make_sandbox(), f'python3 -c "{knock}"').stderr
    finally:
        sandbox.stop()
        thread.join(60)


def test_the_kernels_switches_cannot_be_written(sandbox: Any) -> None:
    places = [
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/pid_max",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/vm/drop_caches",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/pids/pids.max",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/memory/release_agent",
        "/proc/1/mem",
        "/dev/kmsg",
        "/dev/mem",
        "/dev/kvm",
        "/dev/loop-control",
        "/proc/kcore",
    ]
    found = json.loads(python(sandbox, TRY, *places).stdout)
    assert {path: what for path, what in found.items() if what == "written"} == {}
    for hidden in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"):
        assert (
            sh(
                sandbox, f"cat {hidden} 2>/dev/null | head -c 1; ls -A {hidden} 2>/dev/null | grep -v '^{hidden}'"
            ).stdout
            == b""
        )


def test_new_namespaces_mounts_and_devices_are_refused(sandbox: Any) -> None:
    for line in (
        "unshare -U true",
        "unshare -rm true",
        "mount -t proc proc /tmp",
        "mknod x b 7 0",
        "chroot / true",
        "nsenter -t 1 -n true",
        "dmesg",
    ):
        assert sh(sandbox, line).exit_code != 0, line


def test_metadata_host_and_outside_are_unreachable(sandbox: Any) -> None:
    host = socket.gethostbyname(socket.gethostname())
    reach = (
        "import socket, sys\n"
        "for place in sys.argv[1:]:\n"
        "    try:\n"
        "        socket.create_connection((place, 80), 2); print('reached', place)\n"
        "    except OSError as error: pass\n"
        "try: print('resolved', socket.getaddrinfo('example.com', 80))\n"
        "except OSError: pass\n"
    )
    addresses = ["169.254.169.254", "172.17.0.1", "10.0.0.1", "192.168.0.1", "fd00:ec2::254", "1.1.1.1"]
    addresses += [host] if not host.startswith("127.") else []
    assert python(sandbox, reach, *addresses, timeout_s=60).stdout == b""
    assert sh(sandbox, "cat /proc/net/tcp /proc/net/unix | grep -c -v -i address").stdout.strip() in (b"0", b"1")


def test_no_engine_socket_and_no_file_of_another_workspace(
    driver: Any, sandbox: Any, make_sandbox: Callable[..., Any]
) -> None:
    secret = "another-workspaces-secret"
    other = make_sandbox()
    other.write("secret.txt", secret.encode())
    here = f"{driver.store.path(other.spec.key)}/files/secret.txt"
    assert Path(here).read_text() == secret  # so the attempts below do aim at something
    seen = sh(sandbox, f"ls -la /var/run/docker.sock /run/docker.sock {here}; cat {here}; ls {driver.root}")
    assert seen.stdout == b""
    sh(sandbox, f"ln -s {here} absolute; ln -s ../../{other.spec.key}/files/secret.txt up; mkdir -p d; ln -s / d/root")
    for path in ("absolute", "up", f"d/root{here}", f"../../{other.spec.key}/files/secret.txt"):
        with pytest.raises((PathRefused, SandboxError)):
            sandbox.read(path)
    search = (
        "find / -xdev -name 'secret.tx[t]' 2>/dev/null; grep -rs 'another-workspaces-secre[t]' /workspace /run /home"
    )
    assert sh(sandbox, search, timeout_s=60).stdout == b""
    mounts = sh(sandbox, "cat /proc/self/mountinfo").stdout.decode()
    assert other.spec.key not in mounts


def test_no_core_of_a_crash_leaves_the_sandbox(sandbox: Any) -> None:
    """A host's core_pattern may name a program or a folder of the host: a crash inside must not reach it."""
    assert sh(sandbox, "ulimit -Hc; ulimit -c unlimited 2>/dev/null; ulimit -c").stdout == b"0\n0\n"


def test_a_spec_cannot_name_another_workspaces_disk(driver: Any) -> None:
    for key in ("../x", "a/b", "", "A", "x" * 41):
        with pytest.raises(ValueError, match="key"):
            driver.open(SandboxSpec(key))
