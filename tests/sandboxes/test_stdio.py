"""A program whose input and output are held: it answers, is killed with all that it started, and outlives nobody."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness import eventually
from workspaces.sandboxes.base import PathRefused, SandboxUnavailable

UPPER = """
import sys
for line in sys.stdin:
    sys.stdout.write(line.upper()); sys.stdout.flush()
    sys.stderr.write("seen " + line); sys.stderr.flush()
"""
# a child in a session of its own, and a program that ignores the end of its input
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["setsid", "sleep", "4242"])
print("up", flush=True)
while True:
    time.sleep(1)
"""


def lines(process: Any, count: int) -> bytes:
    found = b""
    while found.count(b"\n") < count:
        chunk = process.read()
        if not chunk:
            break
        found += chunk
    return found


def test_it_answers_what_it_is_sent(sandbox: Any) -> None:
    with contextlib.closing(sandbox.open_stdio(["python3", "-c", UPPER], key="a", env={"X": "y"})) as program:
        for word in (b"one\n", b"two \xc3\xbc\n"):
            program.write(word)
            assert lines(program, 1) == word.decode().upper().encode()
        eventually(lambda: (program.write(b"x\n"), lines(program, 1), b"seen one" in program.errors())[2])


def test_much_comes_through_whole_and_in_order(sandbox: Any) -> None:
    script = "import sys\nfor n in range(100000): print(n)"
    with contextlib.closing(sandbox.open_stdio(["python3", "-c", script], key="a")) as program:
        assert lines(program, 100_000) == b"".join(b"%d\n" % n for n in range(100_000))
        assert program.read() == b""


def test_it_has_its_environment_and_folder_and_the_sandboxs_own(sandbox: Any) -> None:
    sandbox.write("sub/here.txt", b"")
    script = 'echo "$X"; ls; [ "$HOME" != /root ] && echo "home is its own"'
    with contextlib.closing(sandbox.open_stdio(["sh", "-c", script], key="a", env={"X": "a b"}, cwd="sub")) as program:
        assert lines(program, 3) == b"a b\nhere.txt\nhome is its own\n"
    with pytest.raises(PathRefused):
        sandbox.open_stdio(["true"], key="b", cwd="../..")


def test_its_end_is_seen_also_when_it_does_not_exist(sandbox: Any) -> None:
    for argv in (["sh", "-c", "exit 3"], ["no-such-program"]):
        with contextlib.closing(sandbox.open_stdio(argv, key="a")) as program:
            assert lines(program, 1) == b""
    assert b"not found" in program.errors()


def test_while_it_runs_the_disk_is_not_quiet_and_afterwards_it_is(sandbox: Any) -> None:
    program = sandbox.open_stdio(["python3", "-c", UPPER], key="a")
    program.write(b"x\n")
    lines(program, 1)
    assert not sandbox.snapshot().quiet
    program.close()
    eventually(lambda: sandbox.snapshot().quiet, within_s=30)


@pytest.mark.parametrize("how", ["close", "kill", "frozen"])
def test_it_is_killed_with_what_it_started_also_what_left_its_group(sandbox: Any, shell: Any, how: str) -> None:
    program = sandbox.open_stdio(["python3", "-c", STUBBORN], key="a")
    assert lines(program, 1) == b"up\n"
    reader = threading.Thread(target=program.read)
    reader.start()
    if how == "kill":
        sandbox.kill("a")
    else:
        if how == "frozen":
            sandbox.freeze()
        program.close()
    sandbox.thaw()
    reader.join(30)
    assert not reader.is_alive()
    eventually(lambda: sandbox.snapshot().quiet, within_s=30)
    program.close()
    with pytest.raises(OSError):  # noqa: PT011 - which of its kinds, the way of holding says
        program.write(b"x" * 20_000_000)


def test_the_same_key_in_another_sandbox_is_another_program(make_sandbox: Any) -> None:
    one, other = (make_sandbox().open_stdio(["python3", "-c", UPPER], key="same") for _ in range(2))
    with contextlib.closing(other):
        one.close()
        other.write(b"x\n")
        assert lines(other, 1) == b"X\n"


def test_a_sandbox_that_does_not_run_opens_nothing(sandbox: Any) -> None:
    sandbox.stop()
    with pytest.raises(SandboxUnavailable):
        sandbox.open_stdio(["true"], key="a")


OPENER = """
import os, signal, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxSpec
driver = make_driver({name!r}, Path({root!r}), store={store!r})
program = driver.open(SandboxSpec({key!r})).open_stdio(["python3", "-c", {script!r}], key="a")
print(program.read(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_by_itself_when_whoever_held_it_is_killed(driver: Any, sandbox: Any) -> None:
    here = str(Path(__file__).parents[2])
    script = STUBBORN.replace('subprocess.Popen(["setsid", "sleep", "4242"])', "")
    told = OPENER.format(
        here=here,
        name=driver.name,
        root=str(driver.root),
        store="btrfs" if "Btrfs" in type(driver.store).__name__ else "content",
        key=sandbox.spec.key,
        script=script,
    )
    opener = subprocess.run(
        [sys.executable, "-c", told], env={**os.environ, "PYTHONPATH": here}, capture_output=True, timeout=120
    )
    assert opener.returncode == -9, opener.stderr.decode()
    assert b"up" in opener.stdout
    eventually(lambda: sandbox.snapshot().quiet, within_s=60)
