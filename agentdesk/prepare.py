"""Brings an installation up to date before it serves: checks, migrations, static files, sandbox image, demo.

Runs as a process of its own, `python -m agentdesk.prepare`, so that the supervisor stays small. Prints one
line a step, `part<TAB>words`; ends with status 1 after a line of part `error`. Repeating it changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

import django
from django.conf import settings
from django.core.checks import ERROR, CheckMessage, run_checks
from django.core.management import call_command, get_commands
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from agentdesk import environment

STATIC_PACKAGES = ("django", "django-htmx", "plotly", "whitenoise")


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")
    os.environ.setdefault("AGENTDESK_DB_STATEMENT_TIMEOUT_S", "0")  # a migration may take its time
    try:
        django.setup()
    except environment.SettingError as error:
        say("error", str(error))
        return 1
    if sys.argv[1:] == ["--only-image"]:
        return 0 if sandbox_image() else 1
    problems = [found for found in run_checks() if found.level >= ERROR]
    if problems:
        say("error", in_words(problems[0]))
        return 1
    migrate()
    collect_static()
    if not sandbox_image():
        return 1
    seed_demo()
    return 0


def say(part: str, words: str) -> None:
    print(f"{part}\t{words}", flush=True)


def in_words(found: CheckMessage) -> str:
    return " ".join(part for part in (found.msg, found.hint, f"({found.id})") if part)


def migrate() -> None:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        say("migrations", f"applying {len(missing)} …")
        call_command("migrate", interactive=False, verbosity=0)
    say("migrations", f"{len(missing)} applied" if missing else "up to date")


def collect_static() -> None:
    """Only when a file or a package changed: compressing takes seconds."""
    stamp = settings.AGENTDESK_HOME / "static.stamp"
    now = static_fingerprint()
    if stamp.exists() and stamp.read_text() == now and settings.STATIC_ROOT.is_dir():
        say("static", "up to date")
        return
    say("static", "collecting …")
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(now)
    say("static", "collected")


def static_fingerprint() -> str:
    digest = hashlib.sha256()
    for package in STATIC_PACKAGES:
        digest.update(f"{package} {version(package)}\n".encode())
    for folder in settings.STATICFILES_DIRS:
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                found = file.stat()
                digest.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def sandbox_image() -> bool:
    """False when Docker was asked for by name and cannot be used; `auto` has fallen back before this runs."""
    if settings.SANDBOX_DRIVER == "local":
        return True
    from workspaces.engine.boxes import new_engine
    from workspaces.sandboxes.base import SandboxUnavailable
    from workspaces.sandboxes.image import default_tag, ensure_everywhere

    tag = settings.SANDBOX_IMAGE or default_tag()
    engines = {name: new_engine(name, timeout_s=600.0) for name in settings.NODES}
    try:
        missed = ensure_everywhere(engines, tag, lambda words: say("sandboxes", words))
    except SandboxUnavailable as error:
        without = "or run without containers: AGENTDESK_SANDBOX_DRIVER=local make up"
        say("error", f"The sandbox image is not usable: {error}. Try: {error.hint}; {without}")
        return False
    finally:
        for engine in engines.values():
            engine.close()
    for name, why in missed.items():
        say("sandboxes", f"the node {name} is left out: {why}")
    say("sandboxes", f"containers of {tag}")
    return True


def seed_demo() -> None:
    """On the first run, which is when nobody could sign in."""
    from django.contrib.auth import get_user_model

    if not environment.flag("AGENTDESK_DEMO", default=True) or get_user_model()._default_manager.exists():
        return
    if "seed_demo" in get_commands():
        say("demo", "writing the demo's users, workspaces and tasks …")
        call_command("seed_demo", stdout=sys.stderr)
        say("demo", "written")


if __name__ == "__main__":
    sys.exit(main())
