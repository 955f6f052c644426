"""The demo that a newcomer sees: two users with their workspaces, an operator, and tasks that run for real.

Everything is made by the product's own actions and engine. Runs once, on an empty installation; the login is
written to AGENTDESK_HOME/demo-login.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from workspaces.actions.profiles import create_profile
from workspaces.actions.quota_settings import make_pool
from workspaces.actions.rollbacks import roll_back
from workspaces.actions.tasks import create_task, pause_task
from workspaces.actions.workspaces import create_workspace, set_member
from workspaces.domain.roles import Role
from workspaces.domain.states import PauseMode, TaskStatus
from workspaces.engine import boxes, runner
from workspaces.models import Checkpoint, ProfileVersion, Task, User, Workspace
from workspaces.tools.registry import BUILTIN_NAMES

SEND_INVOICE = {
    "name": "send_invoice",
    "description": "Send an invoice to a customer. It cannot be called back.",
    "parameters": {
        "type": "object",
        "properties": {
            "customer": {"type": "string", "minLength": 1},
            "amount": {"type": "number", "exclusiveMinimum": 0, "description": "USD"},
            "note": {"type": "string"},
        },
        "required": ["customer", "amount"],
        "additionalProperties": False,
    },
    "effect": "irreversible",
    "command": "tee -a outbox.jsonl && echo >> outbox.jsonl",
}


class Command(BaseCommand):
    help = "Make the demo's users, workspaces, profiles and tasks on an empty installation."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--password", default="", help="of every demo user; made up when not given")

    def handle(self, *args: Any, password: str, **options: Any) -> None:
        if User.objects.exists():
            raise CommandError("There are users already; the demo is for an empty installation.")
        password = password or secrets.token_urlsafe(9)
        with transaction.atomic():
            people = {
                "olive": User.objects.create_user("olive", password=password, first_name="Olive", is_staff=True),
                "ada": User.objects.create_user("ada", password=password, first_name="Ada"),
                "ben": User.objects.create_user("ben", password=password, first_name="Ben"),
            }
        olive, ada, ben = people.values()
        inventory, papers = (self._workspace(ada, name, olive) for name in ("inventory", "papers"))
        billing, reports, rates = (self._workspace(ben, name, olive) for name in ("billing", "reports", "rates"))
        north, south, depot = (
            self._workspace(owner, name, olive) for owner, name in ((ada, "north"), (ada, "south"), (ben, "depot"))
        )
        profiles = {name: self._scripted(olive, name) for name in SCENARIOS}
        self._real(olive)
        self._small_pool(profiles["shelf-count"], olive)
        self._rolled_back(papers, profiles["wrong-turn"], olive)
        for workspace, scenario, title, instruction in (
            (inventory, "careful-developer", "Build and test the inventory", INVENTORY),
            (billing, "invoice", "Invoice Kestrel Bikes for this week", INVOICE),
            (reports, "misremembered-tool", "Write the stock report", REPORT),
            (rates, "lost-file", "Put the rates into a table", RATES),
            (north, "shelf-count", "Count the northern shelves", SHELVES),
            (south, "shelf-count", "Count the southern shelves", SHELVES),
            (depot, "shelf-count", "Count the shelves of the depot", SHELVES),
        ):
            create_task(
                workspace=workspace,
                profile_version=profiles[scenario],
                title=title,
                instruction=instruction,
                actor=workspace.owner,
            )
        login = settings.AGENTDESK_HOME / "demo-login"
        login.touch(mode=0o600)
        login.write_text(
            f"Sign in as olive (operator, sees everything), ada or ben; the password of each is {password}\n"
        )

    def _workspace(self, owner: User, name: str, operator: User) -> Workspace:
        workspace = create_workspace(name=name, owner=owner, driver=boxes.default_driver(), actor=owner)
        set_member(workspace, user=operator, role=Role.OPERATOR, actor=owner)
        return workspace

    def _scripted(self, actor: User, scenario: str) -> ProfileVersion:
        return create_profile(
            name=f"Demo: {scenario.replace('-', ' ')}",
            workspace=None,
            actor=actor,
            provider=ProfileVersion.Provider.SCRIPTED,
            model="scripted",
            provider_options={"scenario": scenario},
            system_prompt="You are careful: you test what you write and say what you did.",
            tools=list(BUILTIN_NAMES),
            declared_tools=[SEND_INVOICE] if scenario == "invoice" else [],
            input_usd_per_mtok="3",
            output_usd_per_mtok="15",
            local_allowed=True,
        )

    def _small_pool(self, version: ProfileVersion, actor: User) -> None:
        """Three tasks share what it lets through, and take turns: a short queue for some minutes."""
        make_pool(
            version=version,
            name="Demo: a small allowance",
            group=version.model,
            limits={"requests_per_minute": 10, "concurrent_calls": 2},
            policy={},
            reason="to show a queue",
            actor=actor,
        )

    def _real(self, actor: User) -> None:
        """The real thing, ready to be pointed at any OpenAI-compatible server."""
        create_profile(
            name="OpenAI-compatible",
            workspace=None,
            actor=actor,
            provider=ProfileVersion.Provider.OPENAI,
            base_url="http://localhost:8080/v1",
            model="local",
            system_prompt="You are a careful software developer.",
            tools=list(BUILTIN_NAMES),
            context_window_tokens=32_000,
            max_output_tokens=2_048,
        )

    def _rolled_back(self, workspace: Workspace, version: ProfileVersion, operator: User) -> None:
        """Run three steps here, pause, and take the task back to before the wrong turn. It stays paused."""
        task = create_task(
            workspace=workspace,
            profile_version=version,
            title="Tidy the drafts",
            instruction="Archive the drafts that are done. Keep the others.",
            actor=workspace.owner,
        )
        while task.steps_taken < 3 and task.status in (TaskStatus.QUEUED, TaskStatus.RUNNING):
            runner.advance(task.pk)
            task.refresh_from_db()
        if task.status != TaskStatus.RUNNING:
            return  # it waits for a person, who will see why
        pause_task(task.pk, mode=PauseMode.BOUNDARY, reason="it deleted drafts/", actor=operator)
        target = Checkpoint.objects.get(task=task, step_number=2)
        roll_back(target.pk, reason="drafts/ was to be kept: back to before it was deleted", actor=operator)
        while Task.objects.filter(pk=task.pk, disk_restore__isnull=False).exists():
            runner.advance(task.pk)


SCENARIOS = ("careful-developer", "misremembered-tool", "invoice", "wrong-turn", "lost-file", "shelf-count")
INVENTORY = (
    "Write a small inventory module in Python with tests.\n"
    "Run the tests after every change and go on adding cases until there are at least 40."
)
INVOICE = "Add up this week's hours in hours.csv at 95 USD an hour and send the invoice to Kestrel Bikes."
REPORT = "Write report.md: one line on the state of the shelves."
SHELVES = "Count every shelf, one after the other, and write each into shelves.txt."
RATES = "Read rates.csv and write rates.md, a table of what each customer pays."
