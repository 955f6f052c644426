"""Copies the installation into a folder, while it runs or not. See docs/operations.md."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentdesk.embedded.at_hand import postgres_at_hand
from agentdesk.embedded.process import StartError
from workspaces.engine.backup.manifest import BackupError
from workspaces.engine.backup.save import back_up
from workspaces.management.answering import answering_database


class Command(BaseCommand):
    help = "Back up database, snapshots, attachments and keys into a folder; again into the same one costs what is new."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="empty, or an earlier backup")
        parser.add_argument("--without-keys", action="store_true", help="keep the encryption keys elsewhere yourself")

    def handle(self, *args: Any, folder: Path, without_keys: bool, **options: Any) -> None:
        began = time.monotonic()
        try:
            with answering_database(), postgres_at_hand(alone=False):
                made = back_up(folder, with_keys=not without_keys)
        except (BackupError, StartError) as error:
            raise CommandError(str(error)) from error
        counts = ", ".join(f"{count:,} {what}" for what, count in made.counts.items())
        self.stdout.write(f"Backed up to {folder} in {time.monotonic() - began:.1f} s: {counts}.")
        if made.keys:
            self.stdout.write("It holds the encryption keys: whoever reads it can read the stored provider keys.")
        else:
            self.stdout.write("It holds NO keys: keep AGENTDESK_FIELD_KEYS (or AGENTDESK_HOME/keys) yourself.")
