"""shell: live output, named ends, and whatever a command may print."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from workspaces.domain.results import ResultClass as R
from workspaces.sandboxes.base import ExecInterrupted, Sandbox, SandboxError
from workspaces.tools.base import ToolContext, ToolResult
from workspaces.tools.output import file_name
from workspaces.tools.shell import Shell

Call = Callable[..., ToolResult]


def test_both_streams_and_the_exit_code_are_told_apart(call: Call) -> None:
    found = call("shell", command="echo out; echo err >&2; exit 3")
    assert found.content == "[result: error - exit code 3]\nout\n[standard error]\nerr"
    assert found.result_class is R.ERROR
    data = found.data
    assert (data["exit_code"], data["stdout"], data["stderr"]) == (3, "out\n", "err\n")


def test_success_without_a_word_is_said(call: Call) -> None:
    found = call("shell", command="true")
    assert found.content == "(exit code 0, no output)"
    assert found.result_class is R.OK


def test_equal_runs_have_equal_content(call: Call) -> None:
    first, second = (call("shell", command=f"sleep {pause}; echo same", timeout_s=10) for pause in (0, 0.3))
    assert first.content == second.content
    long = [call("shell", command="seq 20000") for _ in range(2)]
    assert long[0].data["output_sha256"] == long[1].data["output_sha256"]


def test_output_is_seen_while_the_command_runs(call: Call) -> None:
    seen: list[tuple[float, str, bytes]] = []
    started = time.monotonic()
    call(
        "shell",
        command="echo first; sleep 1.5; echo second >&2",
        context={"on_output": lambda stream, chunk: seen.append((time.monotonic() - started, stream, chunk))},
    )
    assert b"".join(chunk for _, stream, chunk in seen if stream == "stdout") == b"first\n"
    assert b"".join(chunk for _, stream, chunk in seen if stream == "stderr") == b"second\n"
    assert seen[-1][0] - seen[0][0] > 1


def test_a_timeout_is_named_and_keeps_what_was_printed(call: Call) -> None:
    started = time.monotonic()
    found = call("shell", command="echo begun; sleep 60", timeout_s=0.7)
    assert time.monotonic() - started < 10
    assert found.result_class is R.TIMEOUT
    assert "after 0.7 s" in found.content
    assert "begun" in found.content


def test_three_megabytes_go_to_a_file_and_lose_nothing(call: Call, sandbox: Sandbox) -> None:
    command = "for i in 1 2 3; do head -c 1000000 /dev/zero | tr '\\0' $i; echo; done; echo the end"
    found = call("shell", command=command, context={"key": "big-1"})
    assert found.result_class is R.OK
    assert len(found.content) <= 16_000
    path = found.data["offloaded_path"]
    assert path == ".agentdesk/outputs/big-1.txt"
    assert f"{path}, read with read_file" in found.content
    assert found.content.endswith("the end")
    whole = sandbox.read(path)
    assert f"5 lines, {len(whole)} bytes" in found.content
    assert whole.count(b"1") == 1_000_000
    assert whole.endswith(b"3\nthe end")
    assert call("read_file", path=path).result_class is R.OK


def test_more_than_is_kept_is_named_truncated(call: Call) -> None:
    found = call("shell", command="head -c 6000000 /dev/zero | tr '\\0' x")
    assert found.result_class is R.TRUNCATED
    assert found.data["output_lost"] is True


def test_binary_output_is_described(call: Call) -> None:
    found = call("shell", command="head -c 5000 /dev/urandom")
    assert "[binary output, 5000 bytes, begins " in found.content
    assert found.result_class is R.OK


def test_a_nul_byte_in_output_reaches_nobody(call: Call) -> None:
    found = call("shell", command="printf 'a long enough text around it: a\\0b'")
    assert "\x00" not in found.content + found.data["stdout"]
    assert "a\N{REPLACEMENT CHARACTER}b" in found.content


@pytest.mark.parametrize("command", ["echo a\x00b", "echo \ud83d", "echo " + "x" * 200_000])
def test_a_command_that_no_shell_takes_is_refused_before_it_runs(call: Call, command: str) -> None:
    found = call("shell", command=command)
    assert found.result_class is R.ERROR
    assert "othing was run" in found.content


def test_the_same_key_runs_a_command_once(call: Call, sandbox: Sandbox) -> None:
    first = call("shell", command="echo x >> log; cat log", context={"key": "once"})
    again = call("shell", command="echo x >> log; cat log", context={"key": "once"})
    assert sandbox.read("log") == b"x\n"
    assert first.content == again.content


def test_an_interrupt_leaves_the_command_for_a_second_wait(sandbox: Sandbox, notes: Any) -> None:
    interrupt = threading.Event()
    threading.Timer(0.4, interrupt.set).start()
    with pytest.raises(ExecInterrupted):
        Shell().run(
            {"command": "sleep 1.5; echo done >> log"}, ToolContext("held", sandbox, notes, interrupt=interrupt)
        )
    found = Shell().run({"command": "sleep 1.5; echo done >> log"}, ToolContext("held", sandbox, notes))
    assert found.result_class is R.OK
    assert sandbox.read("log") == b"done\n"


def test_output_that_cannot_be_saved_is_named_as_lost(call: Call, sandbox: Sandbox) -> None:
    sandbox.write(".agentdesk/outputs", b"a file stands where the folder should be")
    found = call("shell", command="seq 20000")
    assert found.result_class is R.TRUNCATED
    assert "could not be saved" in found.content
    assert "offloaded_path" not in found.data


def test_a_key_that_is_more_than_a_name_becomes_its_hash() -> None:
    assert file_name("t1-s2.call_3") == "t1-s2.call_3"
    for key in ("../x", "a/b", ".hidden", "", "x" * 200, "\ud800"):
        hashed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        assert file_name(key) == hashed


def test_the_disks_fault_is_the_tools_error_and_a_gone_sandbox_the_engines(call: Call, sandbox: Sandbox) -> None:
    sandbox.stop()
    with pytest.raises(SandboxError):
        call("shell", command="true")
