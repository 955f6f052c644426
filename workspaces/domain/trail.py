"""What detectors read: the newest turns of one line of history, without a database. Pure data.

Made from durable rows by queries/trails.py, so a detector sees the same after a crash, on another worker and after a
sleep. Oldest turn first.
"""

from __future__ import annotations

from dataclasses import dataclass

from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict

WINDOW = 60  # turns


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that has its result. `seq`: of the event that brought it; `call_hash` is empty without arguments.

    `arguments` is canonical JSON, or the model's own text where it could not be read. `result` may be clipped;
    `result_hash` (hex) is of the whole.
    """

    seq: int
    step: int
    tool_call: int
    name: str
    arguments: str
    call_hash: str
    verdict: Verdict
    effect: Effect | None
    result_class: ResultClass
    result: str
    result_hash: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One step whose reply is stored.

    `seq`: of the reply. `disk`: the snapshot that holds the files after it, empty when not known. `notes`: how often
    the agent wrote to the scratchpad. `operator_spoke`: a person's words reached the model with this turn for the
    first time. `provider_errors`: kinds of the failures before the reply. Tokens: of the request, as the provider
    counted them (None: it told none) and as they were estimated.
    """

    step: int
    seq: int
    text: str
    finish_reason: str
    calls: tuple[SeenCall, ...] = ()
    disk: str = ""
    notes: int = 0
    operator_spoke: bool = False
    provider_errors: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    estimated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Trail:
    turns: tuple[Turn, ...]
    instruction: str = ""
    exit_condition: str = ""

    @property
    def calls(self) -> tuple[SeenCall, ...]:
        return tuple(call for turn in self.turns for call in turn.calls)
