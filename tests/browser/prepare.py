"""Makes what a browser test needs, in the product's own database: `python -m tests.browser.prepare`.

A process of its own, because the test process' Django is set up for another database. Reads one JSON object a
line, `{"do": name, …}`, and answers each with one line, `{"ok": value}` or `{"error": words}`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")
django.setup()

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402

from tests.harness import SEND_INVOICE, add_member, make_user, make_workspace, scripted_profile  # noqa: E402
from workspaces.actions.tasks import create_task  # noqa: E402
from workspaces.domain.roles import Role  # noqa: E402
from workspaces.models import ProfileVersion, User, Workspace  # noqa: E402


def user(name: str = "", password: str = "", **fields: Any) -> dict[str, Any]:
    made = make_user(name, **({"password": password} if password else {}), **fields)
    return {"id": made.pk, "name": made.username}


def session(user_id: int) -> str:
    """The cookie's value for somebody who has signed in."""
    who = User.objects.get(pk=user_id)
    store = SessionStore()
    store[SESSION_KEY] = str(who.pk)
    store[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    store[HASH_SESSION_KEY] = who.get_session_auth_hash()
    store.create()
    assert store.session_key
    return store.session_key


def workspace(owner: int, driver: str, name: str = "") -> dict[str, Any]:
    made = make_workspace(User.objects.get(pk=owner), driver=driver, name=name)
    return {"id": made.pk, "name": made.name, "key": made.sandbox_key, "driver": made.driver}


def member(workspace_id: int, user_id: int, role: str) -> None:
    add_member(Workspace.objects.get(pk=workspace_id), User.objects.get(pk=user_id), Role(role))


def profile(owner: int, scenario: str, invoices: bool = True, name: str = "", **fields: Any) -> int:
    declared = [SEND_INVOICE] if invoices else []
    version = scripted_profile(User.objects.get(pk=owner), scenario, declared_tools=declared, **fields)
    return version.pk


def task(workspace_id: int, version: int, instruction: str = "Do the work.", **fields: Any) -> int:
    where = Workspace.objects.get(pk=workspace_id)
    made = create_task(
        workspace=where,
        profile_version=ProfileVersion.objects.get(pk=version),
        instruction=instruction,
        actor=where.owner,
        **fields,
    )
    return made.pk


def usage(tasks: int, driver: str = "local") -> dict[str, Any]:
    """Three months of records, for pictures of pages that are only worth looking at when they are full."""
    from dataclasses import asdict

    from django.utils import timezone

    from tests.bench.costs_data import Size, make_usage
    from tests.harness import scripted_task, work

    template = work(scripted_task("replies: [{text: ok, calls: [{name: finish, arguments: {summary: done}}]}]"))
    size = Size(tasks=tasks, users=max(8, tasks // 100), workspaces=max(10, tasks // 80))
    made = make_usage(size, now=timezone.now(), template=template)
    Workspace.objects.filter(pk__gte=template.workspace_id).update(driver=driver)
    return asdict(made)


def demo(password: str) -> None:
    call_command("seed_demo", password=password, stdout=sys.stderr)


DOES: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (user, session, workspace, member, profile, task, usage, demo)
}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"ok": DOES[order.pop("do")](**order)}
        except Exception as error:  # noqa: BLE001 the caller fails with these words
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
