"""The newest turns of a task's line of history, as detectors read them (domain/trail.py). Reads durable rows only.

Two statements a span, in bounded time: what is older than the window is not looked at. A fork begins with an empty
trail, as a person began it; what lies before it is another task's. A rollback goes on with what lies before the cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.db import connection

from workspaces.domain.effects import Effect, canonical_json
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.text import read_json
from workspaces.domain.trail import WINDOW, SeenCall, Trail, Turn
from workspaces.models import Branch, Task

from .history import line_of

TEXT_CHARS = 4_000  # of a reply, a result or arguments that a detector sees
MOST_ROWS = 4 * WINDOW  # a turn has three rows that matter; an outage or a diary has more, and shortens the window
MOST_CALLS = 10 * WINDOW
ALL_CALLS = 2_000  # of a line, for a claim

_EVENTS = """
SELECT e.seq, e.step_number, e.kind,
       CASE e.kind WHEN 'model.replied' THEN e.data->>'finish_reason' WHEN 'model.failed' THEN e.data->>'error_kind'
                   WHEN 'checkpoint.saved' THEN e.data->>'snapshot' WHEN 'note.written' THEN e.data->>'by'
                   WHEN 'message.added' THEN e.data->>'role' ELSE '' END,
       CASE e.kind WHEN 'model.called' THEN (e.data->>'tokens')::bigint
                   WHEN 'model.replied' THEN (e.data->>'prompt_tokens')::bigint
                   WHEN 'checkpoint.saved' THEN (e.data->>'added_bytes')::bigint END,
       CASE WHEN e.kind = 'model.replied' THEN left(m.text, %s)
            WHEN e.kind = 'checkpoint.saved' THEN e.data->>'files' END
  FROM workspaces_event e
  LEFT JOIN workspaces_modelcall m ON m.id = CASE WHEN e.kind IN ('model.replied', 'model.called', 'model.failed')
                                                  THEN (e.data->>'model_call')::bigint END
 WHERE e.task_id = %s AND e.branch_number = %s AND e.seq <= %s
   AND e.kind IN ('model.called', 'model.replied', 'model.failed', 'message.added', 'note.written', 'checkpoint.saved')
   AND (m.id IS NULL OR m.purpose = 'step')
 ORDER BY e.seq DESC LIMIT %s
"""

_CALLS = """
SELECT c.seq, s.number, c.id, c.name,
       CASE WHEN c.arguments IS NULL THEN left(c.raw_arguments, %s) ELSE left(c.arguments::text, %s) END,
       c.arguments IS NOT NULL, c.arguments_hash, c.verdict, c.effect, c.result_class, left(c.result, %s),
       CASE WHEN c.result_hash = '' THEN encode(sha256(convert_to(c.result, 'UTF8')), 'hex') ELSE c.result_hash END
  FROM workspaces_toolcall c JOIN workspaces_step s ON s.id = c.step_id
 WHERE c.status = 'done' AND c.seq <= %s
   AND c.step_id IN (SELECT id FROM workspaces_step WHERE branch_id = %s AND number >= %s)
 ORDER BY s.number DESC, c.position DESC LIMIT %s
"""

_END = 2**62


@dataclass
class _Turn:
    step: int
    seq: int
    text: str
    finish_reason: str
    prompt_tokens: int | None
    estimated_tokens: int = 0
    disk: str = ""
    notes: int = 0
    operator_spoke: bool = False
    errors: list[str] = field(default_factory=list)


def trail_of(task: Task, branch: Branch, *, disk: str = "") -> Trail:
    """The line that ends with `branch`. `disk`: the snapshot that the newest turn leaves behind, if it is taken."""
    turns: list[_Turn] = []
    calls: dict[int, list[SeenCall]] = defaultdict(list)
    spans = [span for span in line_of(branch) if span.task_id == task.pk]
    numbers = dict(Branch.objects.filter(task=task).values_list("pk", "number")) if len(spans) > 1 else {}
    for at, span in enumerate(reversed(spans)):
        number = numbers.get(span.branch_id, branch.number)
        last_seq = span.last_seq if span.last_seq is not None else _END
        found = _turns_of(task.pk, number, last_seq, begun_by_a_person=at + 1 < len(spans))
        turns = [*found, *turns][-WINDOW:]
        for call in _calls_of(span.branch_id, last_seq, turns[0].step if turns else 0):
            calls[call.step].append(call)
        if len(turns) == WINDOW:
            break
    if turns and disk:
        turns[-1].disk = disk
    return Trail(
        turns=tuple(_as_turn(turn, calls) for turn in turns),
        instruction=task.instruction[:TEXT_CHARS],
        exit_condition=str(task.scratchpad.get("exit_condition", ""))[:TEXT_CHARS],
    )


def _as_turn(turn: _Turn, calls: dict[int, list[SeenCall]]) -> Turn:
    return Turn(
        step=turn.step,
        seq=turn.seq,
        text=turn.text,
        finish_reason=turn.finish_reason,
        calls=tuple(sorted(calls.get(turn.step, ()), key=lambda call: call.seq)),
        disk=turn.disk,
        notes=turn.notes,
        operator_spoke=turn.operator_spoke,
        provider_errors=tuple(turn.errors),
        prompt_tokens=turn.prompt_tokens,
        estimated_tokens=turn.estimated_tokens,
    )


def _turns_of(task_id: int, branch_number: int, last_seq: int, *, begun_by_a_person: bool) -> list[_Turn]:
    with connection.cursor() as cursor:
        cursor.execute(_EVENTS, [TEXT_CHARS, task_id, branch_number, last_seq, MOST_ROWS])
        rows = cursor.fetchall()
    turns: list[_Turn] = []
    errors: list[str] = []
    spoke = begun_by_a_person
    asked: tuple[bool, int] = (begun_by_a_person, 0)  # what the newest request had: a person's new words, its tokens
    disk = ("", None)
    for seq, step, kind, word, number, text in reversed(rows):
        match kind:
            case "message.added":
                spoke = spoke or word == "operator"
            case "model.called":
                asked, spoke = (spoke or asked[0], number or 0), False
            case "model.failed":
                errors.append(word or "")
            case "model.replied":
                turns.append(_Turn(step, seq, text or "", word or "", number))
                turns[-1].operator_spoke, turns[-1].estimated_tokens = asked
                turns[-1].errors, errors, asked = errors, [], (False, 0)
            case "note.written" if turns and word == "agent":
                turns[-1].notes += 1
            case "checkpoint.saved":
                # a snapshot that cost nothing and holds as many files is the same disk under another name
                same = number == 0 and text == disk[1] and disk[0]
                disk = (disk[0] if same else word, text)
                if turns and step == turns[-1].step:
                    turns[-1].disk = disk[0]
    return turns


def _calls_of(branch_id: int, last_seq: int, first_step: int) -> Iterator[SeenCall]:
    with connection.cursor() as cursor:
        cursor.execute(_CALLS, [TEXT_CHARS, TEXT_CHARS, TEXT_CHARS, last_seq, branch_id, first_step, MOST_CALLS])
        rows = cursor.fetchall()
    for row in rows:
        yield _seen(*row)


def _seen(
    seq: int,
    step: int,
    tool_call: int,
    name: str,
    arguments: str,
    read: bool,
    call_hash: str,
    verdict: str,
    effect: str,
    result_class: str,
    result: str,
    result_hash: str,
) -> SeenCall:
    return SeenCall(
        seq=seq,
        step=step,
        tool_call=tool_call,
        name=name,
        arguments=_canonical(arguments) if read else arguments,
        call_hash=call_hash,
        verdict=Verdict(verdict or Verdict.ALLOW.value),
        effect=Effect(effect) if effect else None,
        result_class=ResultClass(result_class or ResultClass.OK.value),
        result=result,
        result_hash=result_hash,
    )


@lru_cache(maxsize=2048)
def _canonical(arguments: str) -> str:
    """The database's text of an object in the form that everything else uses. A clipped one stays as it is."""
    try:
        value: Any = read_json(arguments)
    except ValueError:
        return arguments
    return canonical_json(value)


def calls_on_line(branch: Branch) -> list[SeenCall]:
    """Every call of the line that has its result, also before a fork, oldest first (the newest ALL_CALLS)."""
    calls: list[SeenCall] = []
    for span in reversed(line_of(branch)):
        last_seq = span.last_seq if span.last_seq is not None else _END
        with connection.cursor() as cursor:
            cursor.execute(_CALLS, [TEXT_CHARS, TEXT_CHARS, 500, last_seq, span.branch_id, 0, ALL_CALLS])
            rows = cursor.fetchall()
        calls = [*(_seen(*row) for row in reversed(rows)), *calls]
        if len(calls) >= ALL_CALLS:
            break
    return calls[-ALL_CALLS:]
