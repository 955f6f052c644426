"""One storm: `python -m tests.chaos.once --seed N --engine FOLDER`. The last line is a JSON object; 1 when it fails.

A process of its own for each seed, because Django belongs to one database for life.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import django
import docker.errors
import requests.exceptions

from tests.chaos.engine import Engine
from tests.chaos.faults import Saboteur, schedule
from tests.chaos.product import Browser, Product
from tests.chaos.work import DECLARED, Plan, plan

LEASE_S = 4
STOP_S = 6.0
ENDS_WITHIN_S = 180.0
RESTS_WITHIN_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--engine", type=Path, required=True, help="the folder of an engine that this process starts")
    parser.add_argument("--tasks", type=int, default=30)
    parser.add_argument("--kills", type=int, default=14)
    parser.add_argument("--stops", type=int, default=4)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--gap", type=float, nargs=2, default=(1.5, 4.0), help="seconds between two faults")
    parser.add_argument("--broken", action="store_true", help="with tests/chaos/broken in the product's way")
    parser.add_argument("--keep", action="store_true", help="leave the home folder of a run that failed")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # everything that was started is ended
    home = Path(tempfile.mkdtemp(prefix=f"chaos-{told.seed}-"))
    store = "content" if told.seed % 2 else "btrfs"
    engine = Engine(told.engine)
    product = Product(home, engine=engine.url, lease_s=LEASE_S, store=store, broken=told.broken)
    result: dict[str, Any] = {"seed": told.seed, "store": store, "holds": False}
    try:
        engine.start()
        from workspaces.sandboxes.image import default_tag

        engine.bring(default_tag())
        product.start()
        result |= storm(told, engine, product)
    finally:
        product.stop()
        left = product.left_running()
        engine.stop()
        result["problems"] = {**result.get("problems", {}), **({"processes left": left} if left else {})}
        result["holds"] = bool(result.get("ended")) and not any(result["problems"].values())
        if told.keep and not result["holds"]:
            say(f"kept: {home}")
        else:
            product.remove()
    tell(result)
    print(json.dumps(result), flush=True)
    return 0 if result["holds"] else 1


def storm(told: argparse.Namespace, engine: Engine, product: Product) -> dict[str, Any]:
    os.environ.update({**product.environment, "DJANGO_SETTINGS_MODULE": "agentdesk.settings"})
    os.environ.pop("PYTHONPATH", None)
    django.setup()
    from tests.chaos import audit
    from tests.chaos.bank import Bank
    from tests.chaos.people import FINAL, People, with_database
    from workspaces.models import Task

    rng = random.Random(f"work {told.seed}")
    plans = {f"t{number}": plan(rng, f"t{number}") for number in range(told.tasks)}
    faults = schedule(told.seed, kills=told.kills, stops=told.stops, cuts=told.cuts, gap_s=tuple(told.gap))
    user, session = sign_in()
    began = time.monotonic()
    with Bank(product.home / "sandboxes" / "docker" / "run", told.seed) as bank:
        people = People(told.seed, Browser(product.port, session), bank, forks=told.tasks // 8)
        saboteur = Saboteur(product, engine, faults, stop_s=STOP_S)
        giver = Giver(user, list(plans.values()), over_s=faults[-1].at * 0.75 if faults else 1.0, rng=rng)
        people.start()
        giver.start()
        saboteur.run(say, enough=product.gave_up)
        people.meddle = False

        def at_their_end() -> bool:
            open_tasks = with_database(lambda: Task.objects.exclude(status__in=FINAL).count())
            return not giver.is_alive() and open_tasks == 0

        deadline = time.monotonic() + ENDS_WITHIN_S
        while not at_their_end() and time.monotonic() < deadline and not product.gave_up():
            saboteur.keep_up()
            time.sleep(0.3)
        people.stop()
        storm_s = time.monotonic() - began
        left = containers_left(engine, saboteur)
        problems = {**audit.outside(bank, plans), **audit.work_done(plans), "containers left": left}
        rules, rows, trouble = audit.verified(product)
        problems |= {"broken rules": rows, "not audited": [trouble] if trouble else []}
        problems["pages that failed"] = people.errors
        if product.gave_up():
            problems["the supervisor gave up"] = [product.said()]
        return {
            "ended": not trouble,
            "seconds": round(storm_s, 1),
            "kills": dict(Counter(f.what for f in saboteur.done if f.how == "kill")),
            "stops": dict(Counter(f.what for f in saboteur.done if f.how == "stop")),
            "cuts": dict(Counter(f.what for f in saboteur.done if f.how == "cut")),
            "missed": len(saboteur.missed),
            "people": dict(people.did),
            "asked": dict(people.asked),
            "bank": dict(Counter(entry.what for entry in bank.entries)),
            "figures": audit.figures(),
            "rules": rules,
            "problems": {name: found for name, found in problems.items() if found},
        }


def containers_left(engine: Engine, saboteur: Saboteur) -> list[str]:
    """Those that still run although every workspace has had the time to fall asleep."""
    deadline = time.monotonic() + RESTS_WITHIN_S
    while True:
        try:
            left = engine.containers()
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            left = [f"the engine does not answer: {error}"]
        if not left or time.monotonic() > deadline:
            return left
        saboteur.keep_up()
        time.sleep(0.5)


def sign_in() -> tuple[Any, str]:
    """A person, and the session that a browser of theirs would hold."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.sessions.backends.db import SessionStore

    from workspaces.models import User

    user = User.objects.create_user(f"operator-{secrets.token_hex(4)}", password=None)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return user, str(session.session_key)


class Giver:
    """Gives the tasks out, over most of the storm. What the database did not take is given again, and once."""

    def __init__(self, user: Any, plans: list[Plan], *, over_s: float, rng: random.Random) -> None:
        self.user = user
        self.plans = plans
        self.pauses = [rng.uniform(0, 2 * over_s / len(plans)) for _ in plans]
        self._thread = threading.Thread(target=self._run, name="giver", daemon=True)
        self.start, self.is_alive = self._thread.start, self._thread.is_alive

    def _run(self) -> None:
        for number, given in enumerate(self.plans):
            if number >= 4:
                time.sleep(self.pauses[number])
            while not self._give(given):
                time.sleep(0.3)

    def _give(self, given: Plan) -> bool:
        from django.db import transaction

        from tests.chaos.people import with_database
        from workspaces.actions.profiles import create_profile
        from workspaces.actions.tasks import create_task
        from workspaces.actions.workspaces import create_workspace
        from workspaces.models import Task

        def give() -> bool:
            if Task.objects.filter(instruction=given.name, forked_from=None).exists():
                return True
            with transaction.atomic():
                workspace = create_workspace(name=given.name, owner=self.user, driver="docker", actor=self.user)
                version = create_profile(
                    name=given.name,
                    workspace=workspace,
                    actor=self.user,
                    provider="scripted",
                    model="scripted",
                    tools=["read_file", "write_file", "shell", "note", "finish"],
                    declared_tools=DECLARED,
                    provider_options={"scenario_text": given.scenario},
                    input_usd_per_mtok="3",
                    output_usd_per_mtok="15",
                    keep_last=6,
                    keep_every=3,
                )
                create_task(workspace=workspace, profile_version=version, instruction=given.name, actor=self.user)
            return True

        return bool(with_database(give))


def say(words: str) -> None:
    print(words, flush=True)


def tell(result: dict[str, Any]) -> None:
    for part in ("kills", "stops", "cuts", "bank", "figures", "asked", "people", "rules"):
        for name, count in sorted(result.get(part, {}).items()):
            say(f"  {part:<8} {name:<44} {count:>6}")
    for name, found in result["problems"].items():
        say(f"PROBLEM {name}: {len(found)}")
        for line in found[:10]:
            say(f"    {line}")
    say(f"seed {result['seed']}: {'holds' if result['holds'] else 'DOES NOT HOLD'} after {result.get('seconds')} s")


if __name__ == "__main__":
    sys.exit(main())
