"""Puts every sandbox to rest, for a stop of the installation; run it when no worker runs any more."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from workspaces.engine.lifecycle import rest_all
from workspaces.models import Workspace
from workspaces.sandboxes.base import SandboxError


class Command(BaseCommand):
    help = "Stop idle sandboxes; freeze those with a command in flight, which the next worker goes on with."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        for driver in Workspace.objects.order_by("driver").values_list("driver", flat=True).distinct():
            try:
                done = rest_all(driver)
            except SandboxError as error:
                self.stdout.write(f"{driver}: {error}")
                continue
            if done["stopped"]:
                self.stdout.write(f"{done['stopped']} stopped")
            if done["frozen"]:
                self.stdout.write(f"{done['frozen']} frozen with a command in flight, until the next start")
