"""The one way to write a task's history: a locked task, its events, its messages, its audit entries.

`with writing(task_id) as pen:` is one transaction. Inside, the task's row is locked, so `seq` has no gaps
and two writers take turns; on commit, watchers are told. A worker passes its `fence` and gets FenceLost
when its lease was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.db import connection, transaction
from django.db.models import Model

from workspaces import live
from workspaces.domain.context import estimate_tokens
from workspaces.domain.events import EventKind, event_hash
from workspaces.domain.states import WHY_NOT, TaskStatus, WaitingFor, may_move
from workspaces.domain.text import clean_json, clean_text
from workspaces.models import AuditEntry, Branch, Event, Message, Task, User

from .errors import FenceLost, Refused


class Pen:
    """Writes inside one `writing` block. `task` is the locked row; change its fields through `set`."""

    def __init__(self, task: Task, actor: User | None, *, branch_number: int | None, now: datetime) -> None:
        self.task = task
        self.actor = actor
        self.now = now  # the database's clock, read with the lock
        self._read_branch = (task.branch_id, branch_number)
        self._events: list[Event] = []
        self._messages: list[Message] = []
        self._changed: dict[tuple[str, int], tuple[Model, set[str]]] = {}
        self._dirty: set[str] = set()
        self._last: list[tuple[int, Callable[[], None]]] = []

    @property
    def branch(self) -> Branch:
        assert self.task.branch is not None
        return self.task.branch

    @property
    def branch_number(self) -> int:
        """Read with the lock; anew when the task goes (or has just gone) over to another branch."""
        branch_id, number = self._read_branch
        return number if number is not None and branch_id == self.task.branch_id else self.branch.number

    def set(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.task, name, value)
            self._dirty.add(name)

    def change(self, row: Model, *names: str) -> None:
        """Write fields that were set on another row, in one statement with everything else, when the block ends.

        An event goes with it. Not for what the block itself asks of the database after this.
        """
        self._changed.setdefault((row._meta.db_table, row.pk), (row, set()))[1].update(names)

    def event(self, kind: EventKind, *, step: int | None = None, **data: Any) -> int:
        """Append an event; returns its seq."""
        task = self.task
        seq = task.last_seq + 1
        cleaned = clean_json(data)
        digest = event_hash(
            task.last_hash,
            seq=seq,
            kind=kind.value,
            branch=self.branch_number,
            step=step,
            actor=str(self.actor.pk) if self.actor else "",
            at=self.now,
            data=cleaned,
        )
        self._events.append(
            Event(
                task=task,
                seq=seq,
                branch_number=self.branch_number,
                step_number=step,
                kind=kind.value,
                actor=self.actor,
                data=cleaned,
                at=self.now,
                previous_hash=task.last_hash,
                hash=digest,
            )
        )
        self.set(last_seq=seq, last_hash=digest, last_event_at=self.now)
        return seq

    def message(
        self,
        role: str,
        content: str,
        *,
        seq: int,
        calls: list[dict[str, str]] | None = None,
        call_id: str = "",
        pinned: bool = False,
    ) -> None:
        """Append to the conversation, as part of the event at `seq`. A person's answer in a tool's place is pinned."""
        content = clean_text(content)
        cleaned_calls = clean_json(calls or [])
        self._messages.append(
            Message(
                task=self.task,
                branch_id=self.task.current_branch_id,
                seq=seq,
                part=sum(1 for message in self._messages if message.seq == seq),
                role=role,
                author=self.actor,
                content=content,
                calls=cleaned_calls,
                call_id=clean_text(call_id),
                pinned=pinned or (role == Message.Role.TOOL.value and self.actor is not None),
                tokens=estimate_tokens(content, cleaned_calls),
                created_at=self.now,
            )
        )

    def move(self, new: TaskStatus, *, why: str = "") -> None:
        """Change the status by one conditional UPDATE. Raises Refused when the move is not allowed."""
        old = TaskStatus(self.task.status)
        if not may_move(old, new):
            raise Refused(f"Task {self.task.pk} cannot become {new.value}: {why or WHY_NOT[old]}.")
        fields: dict[str, Any] = {"status": new.value, "status_since": self.now}
        if old is TaskStatus.WAITING:
            fields |= {"waiting_for": "", "waiting_reason": "", "waiting_since": None, "waiting_until": None}
        if new.is_final:
            fields["finished_at"] = self.now
        elif old.is_final:
            fields["finished_at"] = None
        changed = Task.objects.filter(pk=self.task.pk, status=old.value).update(**fields)
        if changed != 1:
            raise FenceLost(f"task {self.task.pk} is no longer {old.value}")
        for name, value in fields.items():
            setattr(self.task, name, value)

    def wait(self, what: WaitingFor, reason: str, until: datetime) -> None:
        """running → waiting, saying for what, since when and until when."""
        old = TaskStatus(self.task.status)
        if not may_move(old, TaskStatus.WAITING):
            raise Refused(f"Task {self.task.pk} cannot wait: {WHY_NOT[old]}.")
        fields: dict[str, Any] = {
            "status": TaskStatus.WAITING.value,
            "status_since": self.now,
            "waiting_for": what.value,
            "waiting_reason": clean_text(reason),
            "waiting_since": self.now,
            "waiting_until": until,
        }
        if Task.objects.filter(pk=self.task.pk, status=old.value).update(**fields) != 1:
            raise FenceLost(f"task {self.task.pk} is no longer {old.value}")
        for name, value in fields.items():
            setattr(self.task, name, value)
        self.event(EventKind.TASK_WAITING, waiting_for=what.value, reason=reason, until=until.isoformat())

    def audit(self, action: str, *, reason: str = "", **data: Any) -> None:
        AuditEntry.objects.create(
            actor=self.actor,
            action=action,
            workspace_id=self.task.workspace_id,
            task=self.task,
            reason=clean_text(reason),
            data=clean_json(data),
            at=self.now,
        )

    def last(self, act: Callable[[], None], *, pool: int) -> None:
        """Do it when all else is written, just before the commit: what is locked there is wanted by every worker.

        By the id of the quota pool that it locks, so that no two of them wait for one another. It may refuse it all by
        raising. It writes no event.
        """
        self._last.append((pool, act))

    def act_last(self) -> None:
        """What was to be done last, after `flush`."""
        while self._last:
            self._last.sort(key=itemgetter(0))
            self._last.pop(0)[1]()

    def flush(self) -> None:
        """Events, messages, changed rows and the task's row in one statement: every write of a step ends here."""
        if not self._dirty:
            assert not self._changed
            return  # no event either: an event moves the tip
        with_rows = [_insert(rows) for rows in (self._events, self._messages) if rows]
        with_rows += [_update(row, names) for row, names in self._changed.values()]
        statement, own_values = _update(self.task, self._dirty)
        if with_rows:
            parts = ", ".join(f"rows_{at} AS ({sql})" for at, (sql, _) in enumerate(with_rows))
            statement = f"WITH {parts} {statement}"
        values = [value for _, row_values in with_rows for value in row_values]
        with connection.cursor() as cursor:
            cursor.execute(statement, [*values, *own_values])
        if self._events:
            live.publish(self.task.pk, self.task.workspace_id, self.task.last_seq)


def _insert(rows: Sequence[Event] | Sequence[Message]) -> tuple[str, list[Any]]:
    """An INSERT of new rows of one table, and its values."""
    table = rows[0]._meta
    columns = [field for field in table.concrete_fields if not field.primary_key]
    names = ", ".join(f'"{field.column}"' for field in columns)
    row = f"({', '.join(['%s'] * len(columns))})"
    sql = f'INSERT INTO "{table.db_table}" ({names}) VALUES {", ".join([row] * len(rows))}'  # noqa: S608
    return sql, [_stored(field, item) for item in rows for field in columns]


def _update(row: Model, names: Iterable[str]) -> tuple[str, list[Any]]:
    """An UPDATE of one row, and its values."""
    columns: list[Any] = [row._meta.get_field(name) for name in sorted(names)]
    assignments = ", ".join(f'"{field.column}" = %s' for field in columns)
    sql = f'UPDATE "{row._meta.db_table}" SET {assignments} WHERE id = %s'  # noqa: S608 - columns of the model
    return sql, [*(_stored(field, row) for field in columns), row.pk]


def _stored(field: Any, row: Model) -> Any:
    return field.get_db_prep_save(getattr(row, field.attname), connection)


_COLUMNS = Task._meta.concrete_fields
_NAMES = tuple(field.attname for field in _COLUMNS)
_READERS = [(at, field.from_db_value) for at, field in enumerate(_COLUMNS) if hasattr(field, "from_db_value")]  # JSON
_LOCKED = f"""
SELECT {", ".join(f'task."{field.column}"' for field in _COLUMNS)},
       (SELECT number FROM workspaces_branch WHERE id = task.branch_id), clock_timestamp()
  FROM workspaces_task AS task WHERE task.id = %s FOR NO KEY UPDATE
"""  # noqa: S608 - columns of the model


def _locked(task_id: int) -> tuple[Task, int | None, datetime]:
    """The row, locked, its branch's number, and the database's clock.

    In SQL, because every write begins with it and the ORM would compile it anew each time.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOCKED, [task_id])
        row = cursor.fetchone()
    if row is None:
        raise Task.DoesNotExist(f"there is no task {task_id}")
    *values, branch_number, now = row
    for at, read in _READERS:
        values[at] = read(values[at], None, connection)
    return Task.from_db(connection.alias, _NAMES, values), branch_number, now


@contextmanager
def writing(task_id: int, *, fence: int | None = None, actor: User | None = None) -> Iterator[Pen]:
    """One transaction on one task. Raises FenceLost when `fence` is given and is not the task's."""
    with transaction.atomic():
        task, branch_number, now = _locked(task_id)
        if fence is not None and task.fence != fence:
            raise FenceLost(f"task {task_id} was taken over (fence {task.fence}, ours {fence})")
        pen = Pen(task, actor, branch_number=branch_number, now=now)
        yield pen
        pen.flush()
        pen.act_last()
