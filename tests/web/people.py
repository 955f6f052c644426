"""People around one workspace: its owner, an operator, a viewer, an outsider, and site staff."""

from __future__ import annotations

from dataclasses import dataclass

from django.test import Client

from tests.harness import SEND_INVOICE, add_member, make_user, make_workspace, scripted_profile, work
from workspaces.actions.tasks import create_task
from workspaces.domain.roles import Role
from workspaces.models import Escalation, ProfileVersion, Task, User, Workspace

HELD = """
    replies:
      - calls: [{name: send_invoice, arguments: {customer: ACME, amount: 10}}]
      - text: done
        calls: [{name: finish, arguments: {summary: sent}}]
"""


@dataclass
class Desk:
    owner: User
    operator: User
    viewer: User
    outsider: User
    staff: User
    workspace: Workspace
    version: ProfileVersion

    def task(self, instruction: str = "Do the work.", *, hold: bool = True) -> Task:
        return create_task(
            workspace=self.workspace,
            profile_version=self.version,
            instruction=instruction,
            actor=self.owner,
            hold=hold,
        )

    def held_call(self) -> Escalation:
        """A task that really ran until its irreversible call was held."""
        task = work(self.task(hold=False))
        return Escalation.objects.get(task=task)


def make_desk() -> Desk:
    owner = make_user()
    workspace = make_workspace(owner)
    operator, viewer = make_user(), make_user()
    add_member(workspace, operator, Role.OPERATOR)
    add_member(workspace, viewer, Role.VIEWER)
    version = scripted_profile(owner, HELD, declared_tools=[SEND_INVOICE])
    return Desk(owner, operator, viewer, make_user(), make_user(is_staff=True), workspace, version)


def sign_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client
