"""Gate: reads a stored reply and writes down the verdict on each call before any of them runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workspaces.actions import calls as call_actions
from workspaces.actions import steps
from workspaces.actions.calls import Judged
from workspaces.domain.boundary import judge
from workspaces.domain.replies import ProposedCall, ReplyReading, read_reply
from workspaces.domain.states import ModelCallPurpose, ModelCallStatus, TaskStatus, Verdict
from workspaces.domain.truncation import CutReply, cut_told
from workspaces.engine import detect, truncation
from workspaces.engine.run import Ended, Run
from workspaces.models import LedgerEntry, ModelCall, Step
from workspaces.providers.base import RawToolCall
from workspaces.queries.history import next_effect_key
from workspaces.queries.profiles import policy_of

TOLD = {
    "empty": "Your reply was empty. Call a tool to go on, or finish if the work is done.",
    "text": "Your reply held no tool call, so nothing was done. Call a tool to go on, or finish if the work is done.",
}


def judge_reply(run: Run, step: Step, reply: ModelCall | None) -> None:
    """Phase gate of a step whose reply is stored (and at hand, if it has just come).

    Raises Ended when the task ends or waits.
    """
    if reply is None:
        reply = ModelCall.objects.get(
            step=step, status=ModelCallStatus.REPLIED.value, purpose=ModelCallPurpose.STEP.value
        )
    reading = read(run, step, reply.text, [RawToolCall(**call) for call in reply.calls], reply.finish_reason)
    cut = truncation.look(run, step, reply, reading)
    if not reading.calls:
        _without_calls(run, step, reading, cut)
        return
    for call in reading.calls:
        if call.correction:
            steps.note_correction(
                run.task.pk,
                run.fence,
                step,
                problem="call found in the text" if call.source == "fenced" else "arguments read leniently",
                told=call.correction,
            )
    call_actions.store_judged(run.task.pk, run.fence, step, _judged(run, reading.calls))


def read(run: Run, step: Step, text: str, calls: Sequence[RawToolCall], finish_reason: str) -> ReplyReading:
    """The same reading for a reply that has just come and for a stored one."""
    return read_reply(text, calls, finish_reason, known_tools=run.tools, id_seed=f"step-{step.pk}")


def _judged(run: Run, proposed: tuple[ProposedCall, ...]) -> list[Judged]:
    known = {name: tool.spec for name, tool in (*run.withheld.items(), *run.tools.items())}
    policy = policy_of(run.version)
    seen: Counter[str] = Counter()
    result = []
    for call in proposed:
        judgement = judge(call, known, policy)
        verdict, key, entry = judgement.verdict, "", None
        if verdict is not Verdict.CORRECT and judgement.effect is not None and judgement.effect.leaves_sandbox:
            key = next_effect_key(run.task, run.branch, judgement.call_hash, earlier_in_step=seen[judgement.call_hash])
            seen[judgement.call_hash] += 1
            entry = LedgerEntry.objects.filter(key=key, state=LedgerEntry.State.COMPLETED).first()
            if entry is not None:
                verdict = Verdict.REPLAY
        result.append(
            Judged(
                call_id=call.call_id,
                name=call.name,
                raw_arguments=call.raw,
                arguments=call.arguments,
                arguments_hash=judgement.call_hash,
                effect=judgement.effect,
                verdict=verdict,
                effect_key=key,
                problems=[{"path": p.path, "reason": p.reason, "value": p.value} for p in judgement.problems],
                told=entry.result if entry else judgement.told,
                replay_of=entry.tool_call_id if entry else None,
                replay_class=entry.result_class if entry else "",
                rule=judgement.rule,
            )
        )
    return result


def _without_calls(run: Run, step: Step, reading: ReplyReading, cut: CutReply | None) -> None:
    if reading.kind == "text" and "finish" not in run.tools:
        held = detect.claims_to_hold(run, step, reading.text)
        if held and steps.hold_back(run.task.pk, run.fence, step, held, None):
            return
        detected = detect.claims_of_the_end(run, step, reading.text)
        steps.finish_task(run.task.pk, run.fence, TaskStatus.SUCCEEDED, reading.text, detected=detected)
        raise Ended
    told = cut_told(cut) if cut is not None else TOLD[reading.kind]
    steps.correct_reply(run.task.pk, run.fence, step, problem=reading.kind, told=told)
