"""The scratchpad as a running tool sees it."""

from __future__ import annotations

from collections.abc import Mapping

from workspaces.actions.scratchpad import write_note
from workspaces.engine.run import Run
from workspaces.models import Step, Task


class Notebook:
    def __init__(self, run: Run, step: Step) -> None:
        self._run = run
        self._step = step

    def read(self) -> Mapping[str, str]:
        pad: dict[str, str] = Task.objects.values_list("scratchpad", flat=True).get(pk=self._run.task.pk)
        return pad

    def write(self, section: str, text: str) -> None:
        write_note(self._run.task.pk, section=section, text=text, fence=self._run.fence, step=self._step.number)
