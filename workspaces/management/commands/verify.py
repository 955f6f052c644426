"""Audits what is stored: every rule that must always hold, with the rows that break it. Changes nothing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from workspaces.engine.integrity import verify_disks
from workspaces.management.answering import NOT_ASKED, answering_database
from workspaces.queries.integrity import Verified, known_task, verify


class Command(BaseCommand):
    help = "Check every invariant of the stored history; ends with status 1 when one is broken."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", nargs="?", type=int, help="only this task")
        parser.add_argument("--deep", action="store_true", help="read the disk of every checkpoint as well")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *args: Any, task: int | None, deep: bool, **options: Any) -> None:
        with answering_database():
            self._verify(task, deep, **options)

    def _verify(self, task: int | None, deep: bool, **options: Any) -> None:
        if task is not None and not known_task(task):
            raise CommandError(f"There is no task {task}.", returncode=NOT_ASKED)
        began = time.monotonic()
        found = []
        for result in [*verify(task), *([verify_disks(task)] if deep else [])]:
            found.append(result)
            if not options["json"]:
                self._tell(result)
        broken = sum(result.broken for result in found)
        seconds = round(time.monotonic() - began, 3)
        if options["json"]:
            self.stdout.write(json.dumps({"broken": broken, "seconds": seconds, "rules": [_plain(r) for r in found]}))
        else:
            self.stdout.write(f"{len(found)} rules, {broken} broken, {seconds:.1f} s")
        if broken:
            raise SystemExit(1)

    def _tell(self, result: Verified) -> None:
        mark = "BROKEN" if result.broken else "holds"
        self.stdout.write(
            f"{mark:<7} {result.rule.name:<14} {result.broken:>6} broken of {result.checked:>9,} "
            f"{result.rule.over:<12} {result.rule.means}"
        )
        for row in result.rows:
            where = f"task {row.task_id}: " if row.task_id is not None else ""
            self.stdout.write(f"          {where}{row.what}")
        if result.broken > len(result.rows):
            self.stdout.write(f"          … and {result.broken - len(result.rows)} more")


def _plain(result: Verified) -> dict[str, Any]:
    return {
        "name": result.rule.name,
        "means": result.rule.means,
        "over": result.rule.over,
        "checked": result.checked,
        "broken": result.broken,
        "rows": [asdict(row) for row in result.rows],
    }
