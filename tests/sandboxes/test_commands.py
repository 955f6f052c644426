"""Commands: keys, output, time, interruption, death of the caller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.conftest import sh
from workspaces.sandboxes.base import ExecInterrupted, PathRefused, SandboxError, SandboxGone, SandboxUnavailable

REPO = Path(__file__).resolve().parents[2]


def wait_until(condition: Any, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def exists(sandbox: Any, path: str) -> bool:
    return any(entry.path == path for entry in sandbox.list())


def in_thread(sandbox: Any, line: str, **more: Any) -> tuple[threading.Thread, list[Any]]:
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(sh(sandbox, line, **more))
        except (SandboxError, ExecInterrupted) as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, ended


def test_output_streams_and_exit_code_are_told_apart(shell: Any) -> None:
    result = shell("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.stdout_truncated


def test_a_command_that_does_not_exist_ends_with_127(sandbox: Any) -> None:
    assert sandbox.exec(["no-such-program-here"], key="a").exit_code == 127


def test_arguments_arrive_exactly(sandbox: Any) -> None:
    argv = ["printf", "%s|", "a b", "", "$HOME", "it's", "line\nbreak", "ü", "\udcff", "-n"]
    assert sandbox.exec(argv, key="a").stdout == b"a b||$HOME|it's|line\nbreak|\xc3\xbc|\xff|-n|"


def test_what_no_process_can_be_given_is_told_in_the_result(sandbox: Any) -> None:
    assert sandbox.exec(["echo", "a\x00b"], key="a").exit_code == 126
    too_long = sandbox.exec(["echo", "x" * 3_000_000], key="b")
    assert too_long.exit_code == 126
    assert b"too long" in too_long.stderr
    assert sandbox.exec(["echo", "half \ud83d pair"], key="c").stdout == b"half ? pair\n"


def test_environment_and_folder_are_the_callers(sandbox: Any, shell: Any) -> None:
    sandbox.write("sub/dir/file", b"")
    result = shell('echo "$WORD"; ls', env={"WORD": "a 'b'"}, cwd="sub/dir")
    assert result.stdout == b"a 'b'\nfile\n"
    assert shell("echo kept >$HOME/kept && cat ~/kept").stdout == b"kept\n"


@pytest.mark.parametrize("cwd", ["..", "/etc", "missing", "out"])
def test_a_folder_outside_is_refused(sandbox: Any, shell: Any, cwd: str) -> None:
    shell("ln -s /etc out")
    with pytest.raises(PathRefused):
        shell("pwd", cwd=cwd)


def test_input_and_output_are_bytes(sandbox: Any) -> None:
    data = bytes(range(256)) * 5000
    assert sandbox.exec(["cat"], key="a", stdin=data).stdout == data


def test_a_key_never_runs_twice(sandbox: Any, shell: Any) -> None:
    first = shell("echo x >>ran; date +%N", key="once")
    assert sandbox.is_known("once")
    assert not sandbox.is_known("other")
    assert shell("echo x >>ran; date +%N", key="once").stdout == first.stdout
    assert sandbox.read("ran") == b"x\n"


def test_many_callers_with_one_key_run_it_once(sandbox: Any) -> None:
    work = [in_thread(sandbox, "echo x >>ran; sleep 0.5; echo done", key="race") for _ in range(6)]
    for thread, ended in work:
        thread.join(30)
        assert ended[0].stdout == b"done\n"
    assert sandbox.read("ran") == b"x\n"


def test_a_command_survives_the_death_of_its_caller(driver: Any, sandbox: Any) -> None:
    line = "echo begun >begun; echo early; sleep 2; echo x >>ran; echo late; exit 5"
    program = f"""
from pathlib import Path
from workspaces.sandboxes import make_driver
from workspaces.sandboxes.base import SandboxSpec
driver = make_driver({driver.name!r}, Path({str(driver.root)!r}), store={driver.store.kind!r})
driver.open(SandboxSpec({sandbox.spec.key!r})).exec(["sh", "-c", {line!r}], key="survivor")
"""
    worker = subprocess.Popen([sys.executable, "-c", program], cwd=REPO)
    wait_until(lambda: exists(sandbox, "begun"))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert not exists(sandbox, "ran")
    assert sandbox.is_known("survivor")
    result = sh(sandbox, "exit 1", key="survivor")
    assert (result.exit_code, result.stdout) == (5, b"early\nlate\n")
    assert sandbox.read("ran") == b"x\n"


def test_a_timeout_kills_also_the_grandchildren_that_left_the_group(sandbox: Any, shell: Any) -> None:
    line = "for i in 1 2; do (setsid sh -c 'while :; do echo x >>beat; sleep 0.05; done' &); done; sleep 60"
    started = time.monotonic()
    result = shell(line, timeout_s=0.7, key="slow")
    assert time.monotonic() - started < 5
    assert (result.exit_code, result.timed_out) == (None, True)
    size = len(sandbox.read("beat"))
    assert size
    time.sleep(0.4)
    assert len(sandbox.read("beat")) == size
    again = shell(line, timeout_s=60, key="slow")
    assert again.timed_out


def test_a_timeout_of_one_command_leaves_another_alone(sandbox: Any, shell: Any) -> None:
    thread, ended = in_thread(sandbox, "sleep 2; echo lives", key="other")
    wait_until(lambda: sandbox.is_known("other"))
    stopped = shell("exec sleep 60", timeout_s=0.3)
    assert (stopped.timed_out, stopped.stderr) == (True, b"")
    thread.join(20)
    assert ended[0].stdout == b"lives\n"


def test_an_interrupt_is_obeyed_at_once_and_leaves_the_command_running(sandbox: Any) -> None:
    interrupt = threading.Event()
    thread, ended = in_thread(sandbox, "sleep 1.5; echo done", key="kept", interrupt=interrupt)
    wait_until(lambda: sandbox.is_known("kept"))
    interrupt.set()
    started = time.monotonic()
    thread.join(10)
    assert time.monotonic() - started < 0.25
    assert isinstance(ended[0], ExecInterrupted)
    assert sh(sandbox, "", key="kept").stdout == b"done\n"


def test_an_interrupt_is_obeyed_while_output_pours(sandbox: Any) -> None:
    interrupt = threading.Event()
    thread, ended = in_thread(sandbox, "yes", key="pour", interrupt=interrupt)
    wait_until(lambda: sandbox.is_known("pour"))
    interrupt.set()
    thread.join(1)
    assert isinstance(ended[0], ExecInterrupted)
    sandbox.kill("pour")


def test_frozen_means_that_nothing_moves_and_thawed_that_it_goes_on(sandbox: Any) -> None:
    thread, ended = in_thread(
        sandbox, "for i in 1 2 3 4 5 6 7 8 9 10; do echo x >>beat; sleep 0.1; done", key="beat", timeout_s=3
    )
    wait_until(lambda: exists(sandbox, "beat"))
    started = time.monotonic()
    sandbox.freeze()
    assert time.monotonic() - started < 0.5
    assert sandbox.state() == "frozen"
    sandbox.freeze()
    size = len(sandbox.read("beat"))
    time.sleep(3)  # longer than the timeout: frozen time does not count
    assert len(sandbox.read("beat")) == size
    with pytest.raises(SandboxUnavailable):
        sh(sandbox, "true")
    sandbox.thaw()
    sandbox.thaw()
    assert sandbox.state() == "running"
    thread.join(20)
    assert ended[0].exit_code == 0
    assert not ended[0].timed_out
    assert len(sandbox.read("beat")) == 20


def test_a_frozen_command_can_be_killed_and_runs_nothing_more(sandbox: Any) -> None:
    line = "trap 'echo x >>after' TERM; for i in 1 2 3; do sleep 0.5; echo x >>after; done"
    thread, ended = in_thread(sandbox, line, key="doomed")
    wait_until(lambda: sandbox.is_known("doomed"))
    time.sleep(0.1)
    sandbox.freeze()
    sandbox.kill("doomed")
    assert sandbox.state() == "frozen"
    sandbox.thaw()
    thread.join(10)
    assert ended[0].exit_code == 137
    time.sleep(0.7)
    assert not exists(sandbox, "after")


def test_a_snapshot_does_not_thaw_what_was_frozen_by_order(sandbox: Any) -> None:
    sandbox.freeze()
    sandbox.snapshot()
    assert sandbox.state() == "frozen"
    sandbox.thaw()
    sandbox.snapshot()
    assert sandbox.state() == "running"


def test_endless_output_is_cut_and_neither_blocks_nor_fills_the_disk(sandbox: Any, shell: Any) -> None:
    result = shell("yes | head -c 200000000; echo end >&2", output_limit_bytes=100_000, timeout_s=30)
    assert (result.exit_code, result.stderr) == (0, b"end\n")
    assert len(result.stdout) == 100_000
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)
    claims = sandbox._folders().claims
    assert sum(path.stat().st_size for path in claims.rglob("*")) < 200_000


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1023, 1024, 1025, 1600])
def test_output_around_the_limit_is_exact(shell: Any, size: int) -> None:
    result = shell(f"head -c {size} /dev/zero", output_limit_bytes=1024)
    assert result.stdout == bytes(min(size, 1024))
    assert result.stdout_truncated == (size > 1024)


def test_output_comes_live_and_whole(shell: Any) -> None:
    got: list[tuple[float, str, bytes]] = []
    shell(
        "echo one; sleep 0.7; echo two >&2; sleep 0.2; printf '\\036end:'",
        on_output=lambda stream, data: got.append((time.monotonic(), stream, data)),
    )
    assert b"".join(data for _, stream, data in got if stream == "stdout") == b"one\n\x1eend:"
    assert [data for _, stream, data in got if stream == "stderr"] == [b"two\n"]
    assert got[1][0] - got[0][0] > 0.4


def test_a_background_child_keeps_nobody_waiting(sandbox: Any, shell: Any) -> None:
    started = time.monotonic()
    result = shell("(sleep 1; echo late; echo alive >alive; sleep 30) & echo started")
    assert time.monotonic() - started < 1
    assert result.stdout == b"started\n"
    wait_until(lambda: exists(sandbox, "alive"))


def test_stop_ends_commands_and_forgets_keys(sandbox: Any) -> None:
    thread, ended = in_thread(sandbox, "sleep 60", key="lost")
    wait_until(lambda: sandbox.is_known("lost"))
    sandbox.stop()
    thread.join(10)
    assert isinstance(ended[0], SandboxGone)
    assert sandbox.state() == "stopped"
    assert not sandbox.is_known("lost")
    with pytest.raises(SandboxUnavailable):
        sh(sandbox, "true")
    sandbox.stop()
    sandbox.start()
    assert sh(sandbox, "echo again", key="lost").stdout == b"again\n"


def test_commands_run_side_by_side(sandbox: Any) -> None:
    started = time.monotonic()
    work = [in_thread(sandbox, f"sleep 1; echo {number}") for number in range(8)]
    for thread, _ in work:
        thread.join(20)
    assert time.monotonic() - started < 5
    assert [ended[0].stdout for _, ended in work] == [b"%d\n" % number for number in range(8)]


def test_a_program_that_kills_its_runner_is_told_as_killed(sandbox: Any, shell: Any) -> None:
    started = time.monotonic()
    result = shell("kill -9 $PPID; sleep 0.1; exit 0")
    assert result.exit_code == 137
    assert b"killed with its runner" in result.stderr
    assert time.monotonic() - started < 5


def test_a_claim_swapped_for_a_link_is_not_followed(sandbox: Any, shell: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    os.chmod(secret, 0o644)
    claims = sandbox._folders().claims
    shell("true", key="swap")
    for claim in claims.iterdir():
        (claim / "out").unlink()
        (claim / "out").symlink_to(secret)
    assert b"host" not in shell("true", key="swap").stdout
