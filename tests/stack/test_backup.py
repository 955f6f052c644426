"""A backup made while tasks run, restored into another, empty installation: they go on there, with their files."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentdesk import environment
from tests.harness import events, eventually, kinds, make_user, make_workspace, scripted_task
from tests.sandboxes.conftest import open_driver
from tests.stack.ground import Ground, ended
from workspaces.actions.tasks import pause_task, resume_task
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine.backup import manifest
from workspaces.engine.backup.manifest import BackupError
from workspaces.engine.backup.save import back_up
from workspaces.models import Escalation, Event, Task, ToolCall, Workspace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.stack]

STEPS = """
replies:
  - calls:
      - name: shell
        arguments: {command: "mkdir -p deep/er; echo one > deep/er/a.txt; head -c 300000 /dev/urandom > big"}
  - delay_s: 1
    calls: [{name: shell, arguments: {command: "echo two >> deep/er/a.txt"}}]
  - calls: [{name: shell, arguments: {command: "cat deep/er/a.txt; sha256sum big"}}]
  - calls: [{name: finish, arguments: {summary: "{{last_result}}"}}]
"""
COMMAND = """
replies:
  - calls: [{name: write_file, arguments: {path: kept.txt, content: kept}}]
  - calls: [{name: shell, arguments: {command: "echo ran >> log; sleep 90"}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
CHARGE = """
replies:
  - calls: [{name: charge, arguments: {amount: 5}}]
  - calls: [{name: finish, arguments: {summary: done}}]
"""
TOOL = {
    "name": "charge",
    "description": "Charge the customer.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
    "effect": "external",
    "command": "sleep 90; echo charged",
}


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """Of the backup, and of the new installation's home."""
    both = Path(tempfile.mkdtemp(prefix="agentdesk-copy-")), Path(tempfile.mkdtemp(prefix="agentdesk-anew-"))
    yield both
    for folder in both:
        shutil.rmtree(folder, ignore_errors=True)


def restore(backup: Path, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """By hand, with nothing running and nothing set: the command brings up what it needs."""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "VALKEY_URL")}
    return subprocess.run(
        [sys.executable, "manage.py", "restore", str(backup)],
        cwd=environment.REPO,
        env=env | {"AGENTDESK_HOME": str(home), **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_tasks_go_on_in_an_installation_restored_from_a_backup(folders: tuple[Path, Path]) -> None:
    backup, home = folders
    with Ground() as ground, ground.spoken_to():
        user = make_user("keeper", is_superuser=True)
        ground.worker()
        ground.scheduler()
        paused = scripted_task(STEPS, workspace=make_workspace(user), api_key="sk-very-secret")
        eventually(lambda: paused_after_a_step(paused), within_s=60)
        done = scripted_task(STEPS, workspace=make_workspace(user))
        eventually(lambda: ended(done), within_s=60)
        done.refresh_from_db()
        command = scripted_task(COMMAND, workspace=make_workspace(user))
        charge = scripted_task(CHARGE, workspace=make_workspace(user), declared_tools=[TOOL])
        eventually(lambda: ToolCall.objects.filter(status="running").count() == 2, within_s=60)
        big = ground.sandbox(paused.workspace).read("big")
        ground.manage("backup", str(backup))
        first = {path: path.stat().st_mtime_ns for path in backup.rglob("big/*/*")}
        told = ground.manage("backup", str(backup))  # again, into the same folder
        assert "4 workspaces" in told
        assert first
        assert {path: path.stat().st_mtime_ns for path in backup.rglob("big/*/*")} == first
        assert len(list(backup.glob("*.dump"))) == 1
        assert "sk-very-secret" not in "".join(path.read_text(errors="replace") for path in backup.rglob("*.json"))
        assert all(
            path.stat().st_mode & 0o077 == 0 for path in [backup, *backup.glob("keys/*"), *backup.glob("*.dump")]
        )
        before = set(Event.objects.values_list("hash", flat=True))

    told_anew = restore(backup, home)
    assert told_anew.returncode == 0, told_anew.stderr[-2000:]
    assert restore(backup, home).returncode != 0, "it wrote over an installation"

    with Ground(home) as anew, anew.spoken_to():
        kept = Event.objects.exclude(kind="task.restored")
        assert set(kept.values_list("hash", flat=True)) <= before
        assert kept.filter(task=done).count() == done.last_seq
        assert not Task.objects.exclude(lease_until=None).exists()
        assert set(Workspace.objects.values_list("state", flat=True)) == {"asleep"}
        assert anew.sandbox(done.workspace).read("deep/er/a.txt") == b"one\ntwo\n"
        assert "0 broken" in anew.manage("verify", "--deep")
        anew.worker()
        anew.scheduler()
        resume_task(paused.pk, reason="restored", actor=user)
        eventually(lambda: ended(paused), within_s=60, what="the paused task goes on")
        paused.refresh_from_db()
        assert paused.status == TaskStatus.SUCCEEDED, kinds(paused)
        assert anew.sandbox(paused.workspace).read("deep/er/a.txt") == b"one\ntwo\n"
        assert anew.sandbox(paused.workspace).read("big") == big
        assert paused.profile_version.key is not None
        key = "from workspaces.models import ProviderKey; print(ProviderKey.objects.get().open())"
        assert "sk-very-secret" in anew.manage("shell", "-v0", "-c", key), "the keys came with it"
        eventually(
            lambda: ToolCall.objects.filter(task=command, name="shell", status="running", attempt=2).exists(),
            within_s=60,
            what="the interrupted command is run again, on the files from before it",
        )
        eventually(lambda: anew.sandbox(command.workspace).read("log") == b"ran\n", within_s=30)
        assert anew.sandbox(command.workspace).read("kept.txt") == b"kept"
        question = eventually(lambda: Escalation.objects.filter(task=charge, status="open").first(), within_s=60)
        assert question.kind == "unknown_outcome", "an effect in flight is not done again by itself"
        assert ToolCall.objects.get(task=charge, name="charge").attempt == 1
        assert events(charge, "task.restored")


def paused_after_a_step(task: Task) -> bool:
    task.refresh_from_db()
    if task.steps_taken >= 1 and task.status == TaskStatus.RUNNING:
        pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="for the test", actor=task.created_by)
    return bool(task.status == TaskStatus.PAUSED)


REFUSED = "This installation is not empty"


@pytest.mark.long
def test_a_damaged_backup_and_a_wrong_place_are_refused_before_anything_changes(folders: tuple[Path, Path]) -> None:
    backup, home = folders
    with Ground() as ground, ground.spoken_to():
        ground.worker()
        ground.scheduler()
        task = scripted_task(STEPS, workspace=make_workspace(make_user("keeper")))
        eventually(lambda: ended(task), within_s=60)
        ground.manage("backup", str(backup), "--without-keys")
        assert not (backup / "keys").exists()
        kept = (ground.home / "keys" / "field_keys").read_text().strip()

    assert "not those that sealed" in restore(backup, home).stderr
    for hurt in (next(backup.glob("*.dump")), next(backup.glob("snapshots/local/big/*/*"))):
        whole = hurt.read_bytes()
        hurt.write_bytes(whole[:-9] + bytes(255 - byte for byte in whole[-9:]))
        refused = restore(backup, home, AGENTDESK_FIELD_KEYS=kept)
        assert refused.returncode == 1
        assert "Traceback" not in refused.stderr
        hurt.write_bytes(whole)
    (backup / "manifest.json").rename(backup / "elsewhere")
    assert "no whole backup" in restore(backup, home, AGENTDESK_FIELD_KEYS=kept).stderr
    (backup / "elsewhere").rename(backup / "manifest.json")
    assert restore(backup, home, AGENTDESK_FIELD_KEYS=kept).returncode == 0
    assert not (home / "restoring").exists()
    assert REFUSED in restore(backup, home, AGENTDESK_FIELD_KEYS=kept).stderr
    with Ground(home) as anew, anew.spoken_to():
        assert anew.sandbox(task.workspace).read("deep/er/a.txt") == b"one\ntwo\n"


def test_a_folder_with_other_things_is_not_backed_up_into(folders: tuple[Path, Path]) -> None:
    backup, _ = folders
    (backup / "letter.txt").write_text("dear")
    with pytest.raises(BackupError, match="something else"):
        back_up(backup)
    assert [path.name for path in backup.iterdir()] == ["letter.txt"]


def test_a_backup_is_alone_in_its_folder_and_a_link_to_that_is_as_good(folders: tuple[Path, Path]) -> None:
    backup, other = folders
    link = other / "newest"
    link.symlink_to(backup)
    made = back_up(link)
    with (backup / "agentdesk-backup").open() as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with pytest.raises(BackupError, match="Another backup"):
            back_up(backup)
    assert (backup / made.database.path).is_file(), "what is whole stays whole"
    shutil.rmtree(backup / "keys")
    (backup / "keys").write_text("in the way")
    with pytest.raises(BackupError, match="could not be written"):
        back_up(backup)


def test_what_a_restore_that_was_cut_short_has_left_does_not_start(folders: tuple[Path, Path]) -> None:
    backup, home = folders
    back_up(backup)
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "VALKEY_URL")}
    env["AGENTDESK_HOME"] = str(home)
    command = [sys.executable, "manage.py", "restore", str(backup)]
    running = subprocess.Popen(command, cwd=environment.REPO, env=env, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (home / "restoring").exists() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    running.kill()
    assert running.communicate()[1] == ""
    again = restore(backup, home)
    assert (again.returncode, "was cut short" in again.stderr) == (1, True)
    checked = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=environment.REPO,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "(workspaces.E006)" in checked.stderr


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"format": 1}', '{"format": 1, "database": [], "keys": {}}'])
def test_a_manifest_that_is_none_is_told_in_words(text: str, folders: tuple[Path, Path]) -> None:
    backup, _ = folders
    (backup / "manifest.json").write_text(text)
    with pytest.raises(BackupError, match=r"manifest\.json|form"):
        manifest.read(backup)


def test_commands_say_that_no_database_answers(folders: tuple[Path, Path]) -> None:
    backup, home = folders
    nowhere = {"DATABASE_URL": f"postgresql://x@/x?host={home}", "AGENTDESK_DB_POOL_TIMEOUT_S": "1"}
    for command in (["verify"], ["backup", str(backup)]):
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=environment.REPO,
            env={**os.environ, "AGENTDESK_HOME": str(home), **nowhere},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "The database does not answer" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 2, "1 says that a rule is broken"


@pytest.mark.long
@pytest.mark.docker
@pytest.mark.parametrize("store", ["btrfs", "content"])
def test_containers_and_their_disks_are_made_anew_on_an_engine_that_knows_nothing_of_them(
    folders: tuple[Path, Path], store: str
) -> None:
    backup, home = folders
    settings = {"AGENTDESK_SANDBOX_STORE": store}
    open_driver("docker", store, home / "probe").close()
    with Ground(driver="docker", **settings) as ground, ground.spoken_to():
        ground.worker()
        ground.scheduler()
        task = scripted_task(STEPS, workspace=make_workspace(make_user("keeper"), driver="docker"))
        eventually(lambda: paused_after_a_step(task), within_s=90)
        ground.manage("backup", str(backup))
        ground.manage("backup", str(backup))
        big = ground.sandbox(task.workspace).read("big")
    shutil.rmtree(home)
    done = restore(backup, home, AGENTDESK_SANDBOX_STORE=store)
    assert done.returncode == 0, done.stderr[-2000:]
    with Ground(home, driver="docker", **settings) as anew, anew.spoken_to():
        anew.worker()
        anew.scheduler()
        resume_task(task.pk, reason="restored", actor=task.created_by)
        eventually(lambda: ended(task), within_s=90, what="the paused task goes on")
        task.refresh_from_db()
        assert task.status == TaskStatus.SUCCEEDED, kinds(task)
        assert anew.sandbox(task.workspace).read("big") == big
        assert anew.sandbox(task.workspace).read("deep/er/a.txt") == b"one\ntwo\n"
        assert "0 broken" in anew.manage("verify", "--deep")
