"""What a rule of the auditor is: a name, what it means, and a query for the rows that break it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TASK = re.compile(r":task\(([\w.]+)\)")


@dataclass(frozen=True, slots=True)
class Rule:
    """`sql` gives (task id or NULL, what is wrong); `:task(column)` in it narrows it to one task.

    `over` is the table whose rows are checked, so that a zero can be told from nothing to check.
    """

    name: str
    means: str
    over: str
    sql: str

    def query(self, task_id: int | None) -> str:
        return narrowed(self.sql, task_id)


def narrowed(sql: str, task_id: int | None) -> str:
    return _TASK.sub(lambda match: "TRUE" if task_id is None else f"{match[1]} = {int(task_id)}", sql)
