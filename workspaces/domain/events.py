"""The kinds of trace events, what each one's data holds, and the hash that chains them. Pure.

Data is JSON. Long texts are excerpts; the whole stands in the row that the id names. The readers are the
task page (`templates/trace/_event.html`), the detectors and the auditor.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Any

from workspaces.domain.effects import canonical_json

GENESIS = "0" * 64
EXCERPT_CHARS = 2_000


class EventKind(StrEnum):
    TASK_CREATED = "task.created"  # instruction, profile, version, fork_of?, checkpoint_seq?
    TASK_STARTED = "task.started"  # worker
    TASK_QUEUED = "task.queued"  # reason
    TASK_WAITING = "task.waiting"  # waiting_for, reason, until
    TASK_PAUSING = "task.pausing"  # mode, reason
    TASK_PAUSED = "task.paused"  # mode, reason
    TASK_RESUMED = "task.resumed"  # reason
    TASK_SUCCEEDED = "task.succeeded"  # text
    TASK_FAILED = "task.failed"  # text
    TASK_CANCELLED = "task.cancelled"  # text
    TASK_CANCELLING = "task.cancelling"  # reason
    TASK_ROLLED_BACK = "task.rolled_back"  # checkpoint_seq, branch, reason, steps, files, cost_usd, kept_effects
    TASK_FORKED = "task.forked"  # checkpoint_seq, fork (task id), reason
    TASK_TAKEN_OVER = "task.taken_over"  # from_worker, worker, phase, step
    TASK_RESTORED = "task.restored"  # made_at (of the backup), snapshot?, undone (names of calls)
    TASK_RETUNED = "task.retuned"  # changes (what, old, new, own), reason
    LIMIT_RAISED = "limit.raised"  # what, old, new, reason; of older tasks: now task.retuned
    BUDGET_CHANGED = "budget.changed"  # budget, what ("set", "changed" or "ended"), old, new, reason
    BUDGET_THRESHOLD = "budget.threshold"  # budget, scope, period, threshold (percent), limits and what is spent?
    INTAKE_DONE = "intake.done"  # source, files, bytes, told, told_more
    INTAKE_FAILED = "intake.failed"  # message
    STEP_STARTED = "step.started"  # step
    CONTEXT_BUILT = "context.built"  # messages, tokens, window_tokens, ranges, as_of_seq, request_hash
    CONTEXT_COMPACTED = "context.compacted"  # what went, from where to where: engine/compaction.py
    SUMMARY_REFUSED = "summary.refused"  # model_call, why
    # model_call, model, attempt, tokens, purpose? (of all four: not the step's own), fallback? (its profile), why?
    MODEL_CALLED = "model.called"
    MODEL_REPLIED = "model.replied"  # model_call, text, calls, finish_reason, usage, cost_usd, latency_s, purpose?
    MODEL_FAILED = "model.failed"  # model_call, error_kind, message, permanent, retry_after_s, attempt, purpose?
    MODEL_DROPPED = "model.dropped"  # model_call, why, partial, purpose?
    REPLY_CORRECTED = "reply.corrected"  # problem, told
    CALL_JUDGED = "call.judged"  # tool_call, name, arguments, effect, verdict, problems, rule?, rule_name?, standing?
    CALL_STARTED = "call.started"  # tool_call, name, effect, attempt
    CALL_FINISHED = "call.finished"  # tool_call, name, result_class, result, duration_s, data (rule?: named the class)
    CALL_REPLAYED = "call.replayed"  # tool_call, name, result, of (tool_call)
    CALL_UNKNOWN = "call.unknown"  # tool_call, name, effect, what (done about it)
    CALL_ABANDONED = "call.abandoned"  # tool_call, name, why
    ESCALATION_OPENED = "escalation.opened"  # escalation, escalation_kind, question, deadline, tool_call?
    ESCALATION_ANSWERED = "escalation.answered"  # escalation, decision, words, arguments?, diff?, also_by?
    ESCALATION_APPROVED_ONCE = "escalation.approved_once"  # escalation, tool_call, name, arguments, edited, diff?
    ESCALATION_RAISED = "escalation.raised"  # escalation, tool_call, approver, deadline
    ESCALATION_EXPIRED = "escalation.expired"  # escalation
    ESCALATION_WITHDRAWN = "escalation.withdrawn"  # escalation, why
    APPROVAL_STANDING = "approval.standing"  # tool_call, name, effect, arguments, reason
    APPROVAL_REVOKED = "approval.revoked"  # standing, name, reason
    MESSAGE_ADDED = "message.added"  # role, text
    NOTE_WRITTEN = "note.written"  # section, text, by ("agent" or "operator"), restored? (seq of the older version)
    CHECKPOINT_SAVED = "checkpoint.saved"  # snapshot, added_bytes, files, duration_s, pending
    TOOLS_LOOKED = "tools.looked"  # server, offered, waiting, unusable, gone; or problem
    NETWORK_CONNECTION = "network.connection"  # host, port, allowed, address, why, at; of many alike: times
    WORKSPACE_MOVED = "workspace.moved"  # from_node, node, why, snapshot, checkpoint_seq, lost
    WORKSPACE_WOKE = "workspace.woke"  # duration_s
    WORKSPACE_SLEPT = "workspace.slept"  # snapshot, added_bytes, idle_s
    WORKSPACE_RESTORED = "workspace.restored"  # snapshot, why, duration_s
    WORKSPACE_FROZEN = "workspace.frozen"  # (nothing)
    INCIDENT_OPENED = "incident.opened"  # incident, incident_kind, pattern, severity, words, seqs (the evidence)
    INCIDENT_GREW = "incident.grew"  # incident, incident_kind, count, severity, words
    INCIDENT_RESPONDED = "incident.responded"  # incident, incident_kind, rung, words
    INCIDENT_MEASURED = "incident.measured"  # incident, incident_kind, helped (whether the nudge did), words
    INCIDENT_ACKNOWLEDGED = "incident.acknowledged"  # incident, incident_kind, reason
    INCIDENT_RESOLVED = "incident.resolved"  # incident, incident_kind, words
    COMMAND_ORDERED = "command.ordered"  # command, text, limit_s
    COMMAND_FINISHED = "command.finished"  # command, outcome, exit_code?, duration_s?, result, why?


def event_hash(
    previous: str, *, seq: int, kind: str, branch: int, step: int | None, actor: str, at: datetime, data: Any
) -> str:
    """SHA-256 (hex) over the previous hash and everything that the event says."""
    body = canonical_json(
        {
            "seq": seq,
            "kind": kind,
            "branch": branch,
            "step": step,
            "actor": actor,
            "at": at.isoformat(timespec="microseconds"),
            "data": data,
        }
    )
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
