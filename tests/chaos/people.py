"""People at their desks, by the web pages: they approve, look outside when asked what happened, pause, resume, roll
back and fork. What is open they read from the database; everything that they do goes through the web server.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection

from tests.chaos.bank import Bank
from tests.chaos.product import Browser
from workspaces.models import Checkpoint, Escalation, Task

T = TypeVar("T")
FINAL = ("succeeded", "failed", "cancelled")
LOOKS_EVERY_S = 0.3
GRACE_S = 1.5  # what was under way when its caller died has reached the bank by then


def with_database(ask: Callable[[], T]) -> T | None:
    """None while it is away; the dead connection is let go."""
    try:
        return ask()
    except (DatabaseError, InterfaceError):
        return None
    finally:
        connection.close()


class People:
    def __init__(self, seed: int, browser: Browser, bank: Bank, *, forks: int) -> None:
        self.rng = random.Random(f"people {seed}")
        self.browser = browser
        self.bank = bank
        self.forks_left = forks
        self.meddle = True
        self.did: Counter[str] = Counter()
        self.errors: list[str] = []  # a page that fails; 503, the database is away, is an answer
        self.asked: Counter[str] = Counter()
        self._seen: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="people", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(LOOKS_EVERY_S):
            with_database(self._look)

    def _look(self) -> None:
        questions = list(Escalation.objects.filter(status="open").select_related("tool_call").order_by("pk"))
        for question in questions:
            if question.pk not in self._seen:
                self._seen.add(question.pk)
                self.asked[question.kind] += 1
            self._answer(question)
        paused = list(Task.objects.filter(status="paused").order_by("pk"))
        for task in paused:
            self._about_paused(task)
        if self.meddle and self.rng.random() < 0.25:
            self._meddle()

    def _post(self, what: str, path: str, **fields: str) -> None:
        try:
            status = self.browser.post(path, **fields)
        except OSError:
            self.did["met a web server that is away"] += 1
            return
        if status >= 500 and status != 503:
            self.errors.append(f"{what}: {path} was answered with {status}")
        self.did[what if status < 400 else f"{what}: refused ({status})"] += 1

    def _answer(self, question: Escalation) -> None:
        path = f"/escalations/{question.pk}/answer/"
        call = question.tool_call
        if question.kind == "held_call":
            if self.rng.random() < 0.5:  # some take their time
                self._post("approve", path, decision="approve")
        elif question.kind == "unknown_outcome":
            assert call is not None
            happened = self.bank.happened(call.arguments["token"])
            if happened:
                self._post("happened", path, decision="happened", words="the bank has it")
            elif happened is not None and time.time() - question.opened_at.timestamp() > GRACE_S:
                self._post("not done", path, decision="not_done")
        elif question.kind == "limit":
            self._post("raise", path, decision="raise", extra_steps="20")
        else:
            self._post("continue", path, decision="continue")

    def _about_paused(self, task: Task) -> None:
        if not self.meddle or self.rng.random() < 0.3:
            self._post("resume", f"/tasks/{task.pk}/resume/", reason="go on")
        elif self.rng.random() < 0.15:
            self._roll_back(task)

    def _roll_back(self, task: Task) -> None:
        checkpoint = self._some_checkpoint(task)
        if checkpoint is not None:
            self._post("roll back", f"/tasks/{task.pk}/checkpoints/{checkpoint.seq}/rollback/", reason="wrong turn")

    def _some_checkpoint(self, task: Task) -> Checkpoint | None:
        found = list(Checkpoint.objects.filter(task=task).order_by("seq"))
        return self.rng.choice(found) if found else None

    def _meddle(self) -> None:
        tasks: list[Any] = list(Task.objects.order_by("pk"))
        if not tasks:
            return
        task = self.rng.choice(tasks)
        choice = self.rng.random()
        if task.status in FINAL:
            if choice < 0.3:
                self._roll_back(task)
        elif choice < 0.6:
            mode = "now" if self.rng.random() < 0.5 else "boundary"
            self._post(f"pause {mode}", f"/tasks/{task.pk}/pause/", mode=mode, reason="look")
        elif choice < 0.8 and self.forks_left > 0 and task.forked_from_id is None:
            checkpoint = self._some_checkpoint(task)
            if checkpoint is not None:
                self.forks_left -= 1
                self._post("fork", f"/tasks/{task.pk}/checkpoints/{checkpoint.seq}/fork/", reason="try beside")
        elif choice < 0.9:
            self._post("message", f"/tasks/{task.pk}/message/", text="Go on like this.")
