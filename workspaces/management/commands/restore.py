"""Makes this (empty) installation from a backup. See docs/operations.md."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from agentdesk.embedded.at_hand import postgres_at_hand
from agentdesk.embedded.process import StartError
from workspaces.engine.backup.load import OTHER_NAME, restore
from workspaces.engine.backup.manifest import BackupError
from workspaces.management.answering import answering_database


class Command(BaseCommand):
    help = "Restore a backup into an empty installation; agentdesk must not run on it."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="written by `manage.py backup`")

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        began = time.monotonic()
        logging.getLogger("workspaces.live").setLevel(logging.ERROR)  # nobody watches, Valkey does not run
        connection.settings_dict["OPTIONS"]["application_name"] = OTHER_NAME
        try:
            with answering_database(), postgres_at_hand(alone=True):
                counts = restore(folder)
        except (BackupError, StartError) as error:
            raise CommandError(str(error)) from error
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items())
        self.stdout.write(f"Restored {folder} in {time.monotonic() - began:.1f} s: {told}.")
