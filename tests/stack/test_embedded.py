"""The embedded servers: their data outlive every end, and nothing of them outlives their starter."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from agentdesk import environment
from agentdesk.embedded import postgres
from agentdesk.embedded.process import Child, StartError, birth, is_running
from agentdesk.embedded.stack import SERVERS, Stack, bound_socket

pytestmark = pytest.mark.stack

HOLDER = """
import sys, time
from pathlib import Path
from agentdesk.embedded.stack import Stack
with Stack(Path(sys.argv[1]), {"postgres", "valkey"}):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _no_given_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.delenv("VALKEY_URL")


@pytest.fixture
def home() -> Iterator[Path]:
    """Short, so that the sockets lie inside."""
    folder = Path(tempfile.mkdtemp(prefix="ad-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """A home with a cluster in it, to copy: making one takes most of a test's time."""
    folder = Path(tempfile.mkdtemp(prefix="ad-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DATABASE_URL")
        with Stack(folder, {"postgres"}):
            pass
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def used_home(home: Path, cluster: Path) -> Path:
    shutil.copytree(cluster / "postgres", home / "postgres")
    return home


def query(stack: Stack, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(stack.environment["DATABASE_URL"], autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


def pids(run: Path) -> list[tuple[int, str]]:
    noted = [file.read_text().split() for file in run.glob("*.pid")]
    return [(int(pid), born) for pid, born in noted]


def gone(processes: list[tuple[int, str]], within_s: float = 15) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_running(pid, born) for pid, born in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextlib.contextmanager
def holder(home: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home)], stdout=subprocess.PIPE, text=True, cwd=environment.REPO
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


def test_a_second_start_goes_on_with_the_data(used_home: Path) -> None:
    with Stack(used_home, SERVERS) as stack:
        query(stack, "CREATE TABLE kept AS SELECT 7 AS number")
        redis.Redis.from_url(stack.environment["VALKEY_URL"]).set("kept", "7")
        running = pids(stack.run)
        assert len(running) == 2
    assert gone(running, within_s=0)
    with Stack(used_home, SERVERS) as stack:
        assert query(stack, "SELECT number FROM kept") == [(7,)]
        assert redis.Redis.from_url(stack.environment["VALKEY_URL"]).get("kept") == b"7"


def test_a_killed_starter_leaves_no_process_and_loses_no_commit(used_home: Path) -> None:
    with holder(used_home) as process:
        stack = Stack(used_home, ())
        stack.environment["DATABASE_URL"] = f"postgresql://agentdesk@/agentdesk?host={stack.run}"
        query(stack, "CREATE TABLE kept AS SELECT 7 AS number")
        running = pids(stack.run)
        assert len(running) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        # At once: the new one has to wait for what the old one's servers are still doing.
        with Stack(used_home, SERVERS) as again:
            assert query(again, "SELECT number FROM kept") == [(7,)]
            assert not any(is_running(pid, born) for pid, born in running)


def test_a_killed_starter_leaves_nothing_even_if_nobody_starts_again(used_home: Path) -> None:
    with holder(used_home) as process:
        running = pids(environment.run_dir(used_home))
        assert len(running) == 2
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert gone(running)


def test_a_killed_postgres_recovers_every_commit(used_home: Path) -> None:
    with Stack(used_home, {"postgres"}) as stack:
        query(stack, "CREATE TABLE kept AS SELECT 7 AS number")
        child = stack.servers["postgres"].child
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        while child.alive():
            time.sleep(0.01)
        stack.servers["postgres"].start()
        assert query(stack, "SELECT number FROM kept") == [(7,)]


def test_a_backend_that_outlives_a_killed_postgres_is_gone_before_the_next_start(used_home: Path) -> None:
    with Stack(used_home, {"postgres"}) as stack:
        server = stack.servers["postgres"]
        busy = psycopg.connect(stack.environment["DATABASE_URL"], autocommit=True)
        pid = busy.info.backend_pid
        busy.pgconn.send_query(b"DO $$ BEGIN LOOP NULL; END LOOP; END $$")
        assert pid in postgres.processes_in(used_home / "postgres")
        assert server.child.pid is not None
        os.kill(server.child.pid, signal.SIGKILL)
        while server.child.alive():
            time.sleep(0.01)
        assert pid in postgres.processes_in(used_home / "postgres")
        server.start()
        assert pid not in postgres.processes_in(used_home / "postgres")
        assert query(stack, "SELECT 1") == [(1,)]
        busy.close()


def test_two_cannot_use_one_home(used_home: Path) -> None:
    with Stack(used_home, ()), pytest.raises(StartError, match=rf"already runs on .*pid {os.getpid()}"):
        Stack(used_home, ()).open()
    with Stack(used_home, ()):
        pass  # given back


def test_a_stale_pid_that_another_process_has_now_stops_nothing(used_home: Path) -> None:
    run = environment.run_dir(used_home)
    environment.make_private(run)
    (used_home / "postgres" / "postmaster.pid").write_text(f"{os.getpid()}\n{used_home}/postgres\n")
    (run / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    (run / "postgres.pid").write_text(f"{os.getpid()} 1\n")  # our pid, another birth
    with Stack(used_home, {"postgres"}) as stack:
        assert query(stack, "SELECT 1") == [(1,)]


def test_an_interrupted_initdb_is_not_taken_for_a_cluster(home: Path) -> None:
    (home / "postgres.new").mkdir()
    (home / "postgres.new" / "PG_VERSION").write_text("18\n")
    with Stack(home, {"postgres"}, durable=False) as stack:
        assert query(stack, "SELECT 1") == [(1,)]


def test_data_of_another_version_are_refused_in_words(used_home: Path) -> None:
    (used_home / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(StartError, match=r"are of Postgres 12.*DATABASE_URL"), Stack(used_home, {"postgres"}):
        pass


def test_data_that_postgres_rejects_are_told_with_its_own_words(used_home: Path) -> None:
    shutil.rmtree(used_home / "postgres" / "global")
    with (
        pytest.raises(StartError, match=r"Postgres ended while starting .*postgres\.log"),
        Stack(used_home, {"postgres"}),
    ):
        pass
    assert pids(environment.run_dir(used_home)) == [] or gone(pids(environment.run_dir(used_home)))


def test_a_deep_home_gets_short_socket_paths(home: Path, cluster: Path) -> None:
    deep = home / ("d" * 100)
    deep.mkdir()
    shutil.copytree(cluster / "postgres", deep / "postgres")
    with Stack(deep, SERVERS) as stack:
        try:
            assert stack.run.parent == Path(tempfile.gettempdir())
            assert stack.run == environment.run_dir(deep)
            assert stack.run.stat().st_mode & 0o077 == 0
            assert query(stack, "SELECT 1") == [(1,)]
        finally:
            shutil.rmtree(stack.run)


def test_servers_of_the_environment_are_used_instead(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://somebody@elsewhere/name")
    monkeypatch.setenv("VALKEY_URL", "redis://elsewhere:6379/0")
    with Stack(home, SERVERS) as stack:
        assert stack.children() == {}
        assert stack.environment["DATABASE_URL"] == "postgresql://somebody@elsewhere/name"


@pytest.mark.parametrize("text", ["", "garbage", "1 2 3"])
def test_a_damaged_pid_file_stops_nothing(home: Path, text: str) -> None:
    (home / "sleeper.pid").write_text(text)
    child = Child("sleeper", ["sleep", "60"], run=home, log=home / "sleeper.log")
    child.start()
    assert child.alive()
    assert child.stop()


def test_a_child_that_ignores_the_signal_is_ended_with_its_group(home: Path) -> None:
    stubborn = "trap '' TERM; sleep 60 & echo $! > inner; wait; sleep 60"
    child = Child("stubborn", ["sh", "-c", stubborn], run=home, log=home / "log", cwd=home)
    child.start()
    while not (home / "inner").exists() or not (home / "inner").read_text().strip():
        time.sleep(0.01)
    inner = int((home / "inner").read_text())
    born = birth(inner)
    assert is_running(inner, born)
    assert child.stop(0.2) is False
    assert gone([(inner, born)])


def test_a_port_in_use_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"Port {port} is in use.*AGENTDESK_PORT={port + 1} make up"):
            bound_socket("127.0.0.1", port)


def test_an_address_of_another_machine_is_told() -> None:
    with pytest.raises(StartError, match="AGENTDESK_BIND"):
        bound_socket("192.0.2.1", 8700)


def test_a_home_that_cannot_be_made_is_told(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(StartError, match="point AGENTDESK_HOME at"):
        Stack(home / "file" / "home", ()).open()


def nobody_can_run_postgres() -> bool:
    with contextlib.suppress(OSError):
        program = str(postgres.binaries() / "postgres")
        who = {"user": postgres.NOBODY, "group": postgres.NOBODY, "extra_groups": []}
        return subprocess.run([program, "--version"], capture_output=True, **who).returncode == 0  # type: ignore[call-overload, no-any-return]
    return False


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")


@as_root
def test_root_without_user_namespaces_runs_postgres_as_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not nobody_can_run_postgres():
        pytest.skip("the user nobody cannot read the binaries here")
    monkeypatch.setattr(postgres.shutil, "which", lambda name: None)
    with Stack(home, {"postgres"}, durable=False) as stack:
        assert query(stack, "SELECT 1") == [(1,)]
        assert (home / "postgres").stat().st_uid == postgres.NOBODY
        assert home.stat().st_mode & 0o007 == 0
    with Stack(home, {"postgres"}, durable=False) as stack:
        assert query(stack, "SELECT 1") == [(1,)]


@as_root
def test_a_user_who_is_not_root_runs_it_as_is(home: Path) -> None:
    """By the first Python of this version that the user may run: root's own often lies in root's folder."""
    program = (
        "import sys; from pathlib import Path; from agentdesk.embedded.postgres import Postgres\n"
        "home = Path(sys.argv[1]); (home / 'log').mkdir()\n"
        "server = Postgres(home, home, durable=False); server.start(); print('up'); print(server.stop())"
    )
    paths = os.pathsep.join([str(environment.REPO), str(Path(psycopg.__file__).parent.parent)])
    pythons = [sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"]
    who = {"user": postgres.NOBODY, "group": postgres.NOBODY, "extra_groups": []}

    def run_as_nobody(code: str) -> subprocess.CompletedProcess[str] | None:
        for python in pythons:
            with contextlib.suppress(OSError):
                return subprocess.run(  # type: ignore[call-overload, no-any-return]
                    [python, "-B", "-c", code, str(home)],
                    cwd="/",
                    env={"PATH": os.environ["PATH"], "PYTHONPATH": paths},
                    capture_output=True,
                    text=True,
                    **who,
                )
        return None

    probe = run_as_nobody("import psycopg, agentdesk")
    if probe is None or probe.returncode:
        pytest.skip("the user nobody can read no Python with these packages")
    os.chown(home, postgres.NOBODY, postgres.NOBODY)
    done = run_as_nobody(program)
    assert done is not None
    assert done.stdout == "up\nTrue\n", done.stderr
    assert (home / "postgres").stat().st_uid == postgres.NOBODY
