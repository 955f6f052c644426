"""The auditor finds what it is there for: a good history is broken in one way after another, behind the triggers' back.

The history is made once, by the engine itself, and committed; each test breaks it inside a transaction of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from tests.harness import SEND_INVOICE, make_user, make_workspace, scripted_profile, work
from tests.web.linked import make_endpoint
from workspaces.actions import sendings
from workspaces.actions.alerts import acknowledge_alert, digest
from workspaces.actions.budget_settings import create_budget
from workspaces.actions.escalations import answer_escalation
from workspaces.actions.incidents import report, respond
from workspaces.actions.link_use import use_link
from workspaces.actions.metering import sandbox_read
from workspaces.actions.pen import writing
from workspaces.actions.reconciliation import bring_export, choose_columns
from workspaces.actions.rollbacks import fork, roll_back
from workspaces.actions.tasks import cancel_task, create_task, pause_task, resume_task
from workspaces.domain.endpoints import AttemptOutcome, EndpointKind
from workspaces.domain.escalations import Decision
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Rung, Severity
from workspaces.domain.provider_exports import ColumnMap
from workspaces.domain.states import BudgetPeriod, BudgetScope, PauseMode, TaskStatus
from workspaces.engine.boxes import driver_for
from workspaces.models import (
    ActionLink,
    Alert,
    AlertRule,
    Checkpoint,
    Endpoint,
    Escalation,
    Snapshot,
    Task,
    UsageImport,
    User,
)
from workspaces.queries.integrity import RULES, verify
from workspaces.sandboxes.base import MachineUsage

pytestmark = pytest.mark.django_db

SCENARIO = """
replies:
  - text: I begin
    calls:
      - {name: note, arguments: {section: plan, text: "write, charge, send"}}
      - {name: shell, arguments: {command: "echo one > log"}}
    usage: {input: 100, output: 20, cached_input: 30, cache_write: 7}
  - calls:
      - {name: charge, arguments: {amount: 5}}
      - {name: send_invoice, arguments: {customer: Kestrel, amount: 12.5}}
    usage: {input: 150, output: 30}
  - calls: [{name: shell, arguments: {command: "echo two >> log"}}]
    usage: {input: 160, output: 20}
  - calls: [{name: finish, arguments: {summary: done}}]
    usage: {input: 190, output: 10}
"""
# what is held is held by rule 1; the others are for what is broken by hand
POLICY = [
    {"tool": "send_invoice", "verdict": "hold"},
    {"tool": "none", "verdict": "correct", "words": "never"},
    {"tool": "none", "verdict": "hold", "approver": "two_persons"},
]
CHARGE = {**SEND_INVOICE, "name": "charge", "effect": "external", "command": "cat >> charged; echo charged"}
CHARGE["parameters"] = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}


COMPACTED = """
replies:
  - text: "{{instruction}} I count."
    calls: [{name: shell, arguments: {command: "seq {{index}} 1500"}}]
    repeat: 14
"""

FINDING = Finding(
    kind=IncidentKind.LOOP,
    severity=Severity.WARNING,
    pattern="same_call_same_result",
    first_seq=4,
    last_seq=9,
    evidence=(Evidence(4, 1, "it began"), Evidence(9, 1, "it went on")),
    words="The same again at step 1.",
    cause="loop/same_call_same_result",
    fingerprint="a" * 64,
    count=2,
)


def compacted_task(user: User) -> Task:
    """Its older outputs are moved to files and its oldest turns summarised: the window is small."""
    version = scripted_profile(user, COMPACTED, context_window_tokens=4_200, max_output_tokens=500)
    return create_task(workspace=make_workspace(user), profile_version=version, instruction="Do it.", actor=user)


def answer_all(task: Task, decision: Decision = Decision.APPROVE, words: str = "") -> Task:
    for question in Escalation.objects.filter(task=task, status="open"):
        answer_escalation(question.pk, decision=decision, actor=task.created_by, words=words)
    return work(task)


def approve_by_link(task: Task) -> Task:
    asked = Escalation.objects.select_related("tool_call").get(task=task, status="open")
    person = task.created_by
    link = ActionLink.objects.create(
        action="approve",
        endpoint=make_endpoint(person, person),
        escalation=asked,
        arguments_hash=asked.tool_call.arguments_hash,
        acts_as=person,
        expires_at=asked.deadline,
    )
    use_link(link.uid, actor=None, address="10.0.0.1")
    return work(task)


@pytest.fixture(scope="module")
def ids(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, int]]:
    """done: with a rollback, a replay and an approval; forked from it and paused; waiting; always: its held
    call is allowed for always; cancelled; compacted."""
    with django_db_blocker.unblock():
        user = make_user()
        version = scripted_profile(
            user,
            SCENARIO,
            declared_tools=[CHARGE, SEND_INVOICE],
            policy=POLICY,
            input_usd_per_mtok="3",
            output_usd_per_mtok="15",
        )
        create_budget(
            scope=BudgetScope.USER,
            period=BudgetPeriod.MONTH,
            user=user,
            limit_tokens=10**9,
            actor=user,
            reason="to be looked at",
        )

        bring_export(b"day,in\n2026-09-01,1\n2026-09-02,x\n", file_name="usage.csv", actor=user)
        export = UsageImport.objects.get()
        choose_columns(export.pk, ColumnMap(day=("day",), input_tokens=("in",)), provider="", actor=user)

        def new() -> Task:
            return create_task(
                workspace=make_workspace(user), profile_version=version, instruction="Do it.", actor=user
            )

        done = approve_by_link(work(new()))
        assert done.status == TaskStatus.SUCCEEDED
        first = Checkpoint.objects.filter(task=done, step_number=1).order_by("seq").last()
        assert first is not None
        roll_back(first.pk, reason="once more", actor=user)
        work(done)
        resume_task(done.pk, actor=user)
        done = work(done)
        assert done.status == TaskStatus.SUCCEEDED
        with writing(done.pk) as pen:
            incident = report(pen, FINDING).incident
            respond(pen, incident, Rung.NUDGED, "look at the evidence")
        forked = work(fork(first.pk, reason="try", actor=user, hold=True))
        waiting = work(new())
        assert waiting.status == TaskStatus.WAITING
        always = answer_all(work(new()), Decision.ALWAYS, "each time")
        assert always.status == TaskStatus.SUCCEEDED
        paused = work(new(), until=lambda task: task.steps_taken == 1)
        pause_task(paused.pk, mode=PauseMode.BOUNDARY, reason="look", actor=user)
        cancelled = work(new(), until=lambda task: task.steps_taken == 1)
        cancel_task(cancelled.pk, reason="no longer wanted", actor=user)
        made = {
            "done": done,
            "forked": forked,
            "waiting": waiting,
            "always": always,
            "paused": work(paused),
            "cancelled": work(cancelled),
            "compacted": work(compacted_task(user)),
        }
        sandbox_read(done.workspace_id, [MachineUsage("a", 3.0, 5.0, 2**30)])
        hook = Endpoint.objects.create(
            name="hook", kind=EndpointKind.WEBHOOK.value, address="https://hook.test/", created_by=user
        )
        AlertRule.objects.get(builtin="agent").endpoints.add(hook)
        digest()
        acknowledge_alert(Alert.objects.get(group_key=f"task:{done.pk}", state="open").pk, actor=user)
        while claims := sendings.claim(64):
            for claimed in claims:
                sendings.finished(claimed, sendings.Result(AttemptOutcome.DELIVERED, status=204))
        yield {name: task.pk for name, task in made.items()}
        # ids are not given twice: what a process knows of an immutable row it knows by its id
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)


def broken_rules() -> dict[str, int]:
    return {result.rule.name: result.broken for result in verify() if result.broken}


def damage(sql: str, ids: dict[str, int]) -> None:
    """Written past triggers, foreign keys and all."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(sql.format(**ids))
        assert cursor.rowcount > 0 or sql.lstrip().startswith("ALTER"), "nothing was broken"
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


def test_a_good_history_breaks_no_rule_and_every_rule_had_something_to_look_at(ids: dict[str, int]) -> None:
    results = list(verify())
    assert {result.rule.name: [row.what for row in result.rows] for result in results if result.broken} == {}
    assert [result.rule.name for result in results] == [rule.name for rule in RULES]
    assert [result.rule.name for result in results if result.checked == 0] == []


EVENT = "workspaces_event"
ONE_DONE = "(SELECT id FROM workspaces_toolcall WHERE task_id = {done} AND name = 'shell' LIMIT 1)"
INVOICE = "(SELECT id FROM workspaces_toolcall WHERE task_id = {done} AND name = 'send_invoice' AND attempt = 1)"
CHARGED = "(SELECT id FROM workspaces_toolcall WHERE task_id = {done} AND name = 'charge' AND attempt = 1)"
LAST_STEP = "(SELECT id FROM workspaces_step WHERE task_id = {done} ORDER BY id DESC LIMIT 1)"

WAYS: list[tuple[str, str, str]] = [
    ("append-only", "a trigger is off", "ALTER TABLE workspaces_event DISABLE TRIGGER workspaces_event_append_only"),
    ("seq", "an event is gone", "DELETE FROM workspaces_event WHERE task_id = {done} AND seq = 7"),
    ("seq", "the newest events are gone", "DELETE FROM workspaces_event WHERE task_id = {waiting} AND seq > 9"),
    ("tip", "the tip is another", "UPDATE workspaces_task SET last_hash = repeat('a', 64) WHERE id = {paused}"),
    ("chain", "an event tells something else",
     "UPDATE workspaces_event SET data = data || '{{\"text\": \"I did nothing\"}}' WHERE task_id = {done} AND seq = 9"),
    ("chain", "an event has another time",
     "UPDATE workspaces_event SET at = at + interval '1 microsecond' WHERE task_id = {done} AND seq = 5"),
    ("chain", "an event was done by somebody else",
     "UPDATE workspaces_event SET actor_id = NULL WHERE task_id = {done} AND kind = 'escalation.answered'"),
    ("chain", "an event lies on an older branch",
     "UPDATE workspaces_event SET branch_number = 1 WHERE task_id = {done} AND seq ="
     " (SELECT last_seq FROM workspaces_task WHERE id = {done})"),
    ("event-branch", "an event lies on no branch",
     "UPDATE workspaces_event SET branch_number = 9 WHERE task_id = {done} AND seq = 3"),
    ("status", "a failed task calls itself succeeded",
     "UPDATE workspaces_task SET status = 'succeeded', finished_at = now() WHERE id = {paused}"),
    ("messages", "a message comes from nowhere",
     "UPDATE workspaces_message SET seq = 99999 WHERE id ="
     " (SELECT max(id) FROM workspaces_message WHERE task_id = {done})"),
    ("conversation", "an operator's instruction is gone",
     "DELETE FROM workspaces_message WHERE task_id = {waiting} AND role = 'user'"),
    ("conversation", "a reply is gone", "DELETE FROM workspaces_message WHERE id ="
     " (SELECT max(id) FROM workspaces_message WHERE task_id = {done} AND role = 'assistant')"),
    ("results", "the model was told another result",
     "UPDATE workspaces_message SET content = 'all is well' WHERE task_id = {done} AND role = 'tool'"),
    ("results", "a result has no event", f"UPDATE workspaces_toolcall SET seq = 1 WHERE id = {ONE_DONE}"),
    ("intents", "a call ran once more than it was begun",
     f"UPDATE workspaces_toolcall SET attempt = attempt + 1 WHERE id = {ONE_DONE}"),
    ("intents", "a result was there before the call",
     f"UPDATE workspaces_toolcall SET started_at = finished_at + interval '1 s' WHERE id = {ONE_DONE}"),
    ("effect-intent", "an effect has no row in the ledger",
     f"DELETE FROM workspaces_ledgerentry WHERE tool_call_id = {CHARGED}"),
    ("effect-intent", "the ledger was written after the effect",
     f"UPDATE workspaces_ledgerentry SET created_at = completed_at WHERE tool_call_id = {CHARGED}"),
    ("effect-once", "an effect was done twice", f"UPDATE workspaces_toolcall SET attempt = 2 WHERE id = {CHARGED}"),
    ("effect-once", "a replayed effect was run as well",
     "UPDATE workspaces_toolcall SET attempt = 1, verdict = 'allow', started_at = finished_at"
     " WHERE task_id = {done} AND name = 'charge' AND verdict = 'replay'"),
    ("effect-again", "an effect began after it was completed",
     "UPDATE workspaces_toolcall SET attempt = 1, started_at = finished_at"
     " WHERE task_id = {done} AND name = 'charge' AND verdict = 'replay'"),
    ("ledger", "the ledger forgot that an effect was completed",
     f"UPDATE workspaces_ledgerentry SET state = 'intended', completed_at = NULL WHERE tool_call_id = {CHARGED}"),
    ("ledger", "the ledger's row is another call's",
     f"UPDATE workspaces_ledgerentry SET tool_call_id = {ONE_DONE} WHERE tool_call_id = {CHARGED}"),
    ("replays", "a replay gave another result",
     "UPDATE workspaces_toolcall SET result = 'sent twice' WHERE task_id = {done} AND verdict = 'replay'"),
    ("approvals", "a held call ran without an approval",
     f"DELETE FROM workspaces_approval WHERE tool_call_id = {INVOICE}"),
    ("approvals", "the approval was for other arguments",
     f"UPDATE workspaces_approval SET arguments_hash = repeat('0', 64) WHERE tool_call_id = {INVOICE}"),
    ("approvals", "the approval had expired",
     f"UPDATE workspaces_approval SET expires_at = used_at - interval '1 s' WHERE tool_call_id = {INVOICE}"),
    ("two-persons", "one person was enough", f"UPDATE workspaces_toolcall SET policy_rule = 3 WHERE id = {INVOICE}"),
    ("refused", "a call ran that the policy refuses",
     f"UPDATE workspaces_toolcall SET policy_rule = 2 WHERE id = {INVOICE}"),
    ("leave", "the first of two persons is made up",
     f"UPDATE workspaces_approval SET also_by_id = given_by_id WHERE tool_call_id = {INVOICE}"),
    ("standing", "a standing approval is for another call",
     "UPDATE workspaces_standingapproval SET arguments_hash = repeat('0', 64) WHERE task_id = {always}"),
    ("standing", "a standing approval was given by nobody",
     "UPDATE workspaces_standingapproval SET seq = 1 WHERE task_id = {always}"),
    ("standing", "a standing approval was revoked in silence",
     "UPDATE workspaces_standingapproval SET revoked_at = now(), revoked_by_id = given_by_id WHERE task_id = {always}"),
    ("leave", "nobody gave the approval",
     "UPDATE workspaces_escalation SET decision = 'reject' WHERE task_id = {done} AND decision = 'approve'"),
    ("arguments", "a held call ran with other arguments",
     "UPDATE workspaces_toolcall SET arguments = jsonb_set(arguments, '{{amount}}', '99')"
     f" WHERE id = {INVOICE}"),
    ("verdicts", "a corrected call ran",
     f"UPDATE workspaces_toolcall SET verdict = 'correct' WHERE id = {ONE_DONE}"),
    ("one-at-a-time", "two calls of a step ran at once",
     "UPDATE workspaces_toolcall SET finished_at = finished_at + interval '1 h'"
     " WHERE task_id = {done} AND name = 'note'"),
    ("waits", "a task says no longer until when",
     "ALTER TABLE workspaces_task DROP CONSTRAINT task_waiting_says_for_what;"
     "UPDATE workspaces_task SET waiting_until = NULL WHERE id = {waiting}"),
    ("questions", "a task waits for an answer to nothing",
     "DELETE FROM workspaces_escalation WHERE task_id = {waiting}"),
    ("questions", "an answered question is open again",
     "UPDATE workspaces_escalation SET status = 'open' WHERE task_id = {done} AND decision = 'approve'"),
    ("leases", "a lease of nobody",
     "UPDATE workspaces_task SET lease_until = now() + interval '5 s' WHERE id = {paused}"),
    ("workspaces", "an ended task holds its workspace",
     "UPDATE workspaces_workspace SET held_by_id = {done} WHERE id ="
     " (SELECT workspace_id FROM workspaces_task WHERE id = {done})"),
    ("workspaces", "a task holds another's workspace",
     "UPDATE workspaces_task SET workspace_id = (SELECT workspace_id FROM workspaces_task WHERE id = {done})"
     " WHERE id = {waiting}"),
    ("leftovers", "a call of an ended task still runs",
     f"UPDATE workspaces_toolcall SET status = 'running' WHERE id = {ONE_DONE}"),
    ("leftovers", "a model call of an ended task still runs",
     "UPDATE workspaces_modelcall SET status = 'running', finished_at = NULL WHERE id ="
     " (SELECT max(id) FROM workspaces_modelcall WHERE task_id = {cancelled})"),
    ("leftovers", "a hold stands on an ended task",
     "UPDATE workspaces_latch SET released_at = NULL, task_id = {done} WHERE task_id = {paused}"),
    ("orphans", "a step lies on another task's branch",
     f"UPDATE workspaces_step SET branch_id = (SELECT branch_id FROM workspaces_task WHERE id = {{paused}})"
     f" WHERE id = {LAST_STEP}"),
    ("steps", "a step is gone", "DELETE FROM workspaces_step WHERE id ="
     " (SELECT min(id) FROM workspaces_step WHERE task_id = {done} AND number = 2)"),
    ("steps", "the count of steps is wrong", "UPDATE workspaces_task SET steps_taken = 1 WHERE id = {done}"),
    ("phases", "a step goes on without a reply",
     f"DELETE FROM workspaces_modelcall WHERE step_id = {LAST_STEP}"),
    ("phases", "a settled step is not settled",
     f"UPDATE workspaces_step SET phase = 'replied', settled_at = NULL WHERE id = {LAST_STEP}"),
    ("branches", "a branch begins where no checkpoint is",
     "UPDATE workspaces_branch SET parent_seq = parent_seq + 1 WHERE task_id = {done} AND number = 2"),
    ("branches", "a task stands on a branch that was left",
     "UPDATE workspaces_task SET branch_id = (SELECT id FROM workspaces_branch WHERE task_id = {done} AND number = 1)"
     " WHERE id = {done}"),
    ("checkpoints", "a checkpoint is gone", "DELETE FROM workspaces_checkpoint WHERE id ="
     " (SELECT min(id) FROM workspaces_checkpoint WHERE task_id = {done})"),
    ("checkpoints", "a checkpoint has another disk",
     "UPDATE workspaces_checkpoint SET snapshot_id = (SELECT max(id) FROM workspaces_snapshot) WHERE id ="
     " (SELECT min(id) FROM workspaces_checkpoint WHERE task_id = {done})"),
    ("checkpoints", "a checkpoint lost its pending call",
     "UPDATE workspaces_checkpoint SET pending = '[]' WHERE task_id = {waiting} AND pending <> '[]'"),
    ("audit", "a rollback is not in the audit log",
     "DELETE FROM workspaces_auditentry WHERE task_id = {done} AND action = 'task.rollback'"),
    ("audit", "an incident was acknowledged and the audit log says nothing",
     "UPDATE workspaces_event SET kind = 'incident.acknowledged' WHERE task_id = {done} AND kind = 'incident.opened'"),
    ("scratchpad", "a task's scratchpad is another",
     "UPDATE workspaces_task SET scratchpad = '{{}}' WHERE id = {done}"),
    ("notes", "a version of a note was rewritten",
     "UPDATE workspaces_scratchpadedit SET text = 'x' WHERE task_id = {done}"),
    ("notes", "a version of a note is gone", "DELETE FROM workspaces_scratchpadedit WHERE task_id = {done}"),
    ("sums", "a task counts too few tokens",
     "UPDATE workspaces_task SET prompt_tokens = prompt_tokens - 1 WHERE id = {done}"),
    ("sums", "a task counts too little money",
     "UPDATE workspaces_task SET cost_usd = cost_usd - 0.000000001 WHERE id = {done}"),
    ("sums", "an unpriced call is not counted",
     "UPDATE workspaces_task SET unpriced_calls = unpriced_calls + 1 WHERE id = {done}"),
    ("usage", "a usage record is gone", "DELETE FROM workspaces_usagerecord WHERE task_id = {done}"
     " AND unit = 'cached_input_tokens'"),
    ("usage", "a usage record counts twice",
     "UPDATE workspaces_usagerecord SET quantity = quantity * 2 WHERE task_id = {done} AND unit = 'output_tokens'"),
    ("prices", "a usage record costs other than its price says",
     "UPDATE workspaces_usagerecord SET unit_price_usd = coalesce(unit_price_usd, 0) + 1, cost_usd = 0"
     " WHERE task_id = {done}"),
    ("meters", "a sandbox was read and nobody pays",
     "UPDATE workspaces_sandboxmeter SET cpu_s = cpu_s + 1"),
    ("rollup", "a sum counts too little",
     "UPDATE workspaces_usagerollup SET quantity = quantity - 1 WHERE task_id = {done} AND unit = 'output_tokens'"),
    ("rollup", "a sum is of nothing",
     "UPDATE workspaces_usagerollup SET hour = hour - interval '1 hour' WHERE task_id = {done}"
     " AND unit = 'output_tokens'"),
    ("rollup", "records have no sum", "DELETE FROM workspaces_usagerollup WHERE task_id = {done}"),
    ("days", "a day's sum counts too little",
     "UPDATE workspaces_usageday SET cost_usd = cost_usd - 0.000000001 WHERE task_id = {done}"),
    ("days", "a day's sum is gone", "DELETE FROM workspaces_usageday WHERE task_id = {done}"),
    ("imports", "a line of an export is gone", "DELETE FROM workspaces_usageimportrow WHERE problem <> ''"),
    ("booked", "usage is booked to another profile",
     "UPDATE workspaces_usagerecord SET profile_id = NULL WHERE task_id = {done}"),
    ("booked", "usage is booked to nobody in particular",
     "UPDATE workspaces_usagerecord SET user_id = user_id + 1 WHERE task_id = {done}"),
    ("budget-spent", "a budget counts less than was spent",
     "UPDATE workspaces_budgetaccount SET spent_tokens = spent_tokens - 1"),
    ("budget-spent", "a record is not counted",
     "UPDATE workspaces_usagerecord SET cost_usd = cost_usd + 1 WHERE task_id = {done} AND unit = 'output_tokens'"),
    ("budget-reserved", "something is reserved for nobody",
     "UPDATE workspaces_budgetaccount SET reserved_tokens = reserved_tokens + 5"),
    ("budget-assumed", "something is assumed of no call",
     "UPDATE workspaces_budgetaccount SET assumed_usd = assumed_usd + 1"),
    ("model-calls", "a model was asked without an intent",
     "INSERT INTO workspaces_modelcall (task_id, step_id, attempt, status, model, request_hash, text, calls,"
     " finish_reason, error_kind, error, started_at, finished_at)"
     " SELECT task_id, step_id, 9, 'dropped', model, request_hash, '', '[]', '', '', '', now(), now()"
     " FROM workspaces_modelcall WHERE task_id = {paused} LIMIT 1"),
    ("quota-held", "a pool holds more than its claims",
     "UPDATE workspaces_quotapool SET state = jsonb_set(state, '{{f,1}}', '4096')"),
    ("quota-queue", "somebody waits whom nobody counts",
     "UPDATE workspaces_quotaclaim SET state = 'waiting' WHERE task_id = {done}"),
    ("quota-leases", "a lease outlived its call",
     "UPDATE workspaces_quotaclaim SET state = 'leased' WHERE task_id = {done}"),
    ("quota-shares", "a user has more places than claims", "UPDATE workspaces_quotashare SET open = open + 1"),
    ("compactions", "a receipt tells of a message that nothing replaces",
     "UPDATE workspaces_event SET kind = 'context.compacted', data = '{{\"offloaded\": [1], \"clipped\": []}}'"
     " WHERE task_id = {done} AND kind = 'context.built'"),
    ("replacements", "a message is replaced without a receipt",
     "INSERT INTO workspaces_replacement (task_id, branch_id, seq, message_id, how, text, tokens, path)"
     " SELECT task_id, branch_id, seq, id, 'clipped', '', 0, '' FROM workspaces_message WHERE task_id = {done}"),
    ("summaries", "a step's own reply is a summary",
     "INSERT INTO workspaces_summary (task_id, branch_id, seq, first_message_id, last_message_id, messages, replies,"
     " text, tokens_before, tokens_after, model_call_id) SELECT m.task_id, m.branch_id, m.seq, m.id, m.id, 1, 1, '',"
     " 2, 1, c.id FROM workspaces_message m JOIN workspaces_modelcall c ON c.task_id = m.task_id"
     " WHERE m.task_id = {done} LIMIT 1"),
    ("manifests", "the tools that a request was framed with are gone", "DELETE FROM workspaces_contextframe"),
    ("requests", "a message is no longer what was sent",
     "UPDATE workspaces_message SET content = 'other' WHERE task_id = {done} AND role = 'user'"),
    ("incidents", "a response is not in the trace",
     "UPDATE workspaces_incident SET responses = responses || responses WHERE task_id = {done}"),
    ("incidents", "an incident was resolved in silence",
     "UPDATE workspaces_incident SET state = 'resolved', resolved_at = now() WHERE task_id = {done}"),
    ("incidents", "an incident grew in silence",
     "UPDATE workspaces_incident SET grew_at = now() WHERE task_id = {done}"),
    ("incidents", "a nudge is called a help and the trace tells of no measure",
     "UPDATE workspaces_incident SET responses = jsonb_set(responses, '{{0,measured_seq}}', '1')"
     " WHERE task_id = {done}"),
    ("incidents", "a nudge is not in the trace", "UPDATE workspaces_incident SET nudges = 2 WHERE task_id = {done}"),
    ("tool-definitions", "a server's tool was called by a definition that nobody accepted",
     "UPDATE workspaces_toolcall SET result_data = '{{\"mcp_server\": \"a\"}}' WHERE task_id = {done}"),
    ("learned-windows", "a prompt is called cut and no incident says so",
     "UPDATE workspaces_modelcall SET prompt_truncated = TRUE WHERE task_id = {done}"),
    ("learned-windows", "a window was learned from something else",
     "INSERT INTO workspaces_learnedwindow (profile_version_id, model, tokens, incident_id, seq, learned_at)"
     " SELECT t.profile_version_id, 'm', 4096, i.id, 1, now() FROM workspaces_incident i"
     " JOIN workspaces_task t ON t.id = i.task_id WHERE i.task_id = {done} LIMIT 1"),
    ("incident-evidence", "the evidence is from the future",
     "UPDATE workspaces_incident SET evidence = jsonb_set(evidence, '{{0,seq}}', '99999') WHERE task_id = {done}"),
    ("incident-evidence", "an incident has no evidence",
     "UPDATE workspaces_incident SET evidence = '[]' WHERE task_id = {done}"),
    ("links", "a link was used when it was over",
     "UPDATE workspaces_actionlink SET expires_at = used_at WHERE used_at IS NOT NULL"),
    ("links", "a link was used although it was revoked",
     "UPDATE workspaces_actionlink SET revoked_at = used_at - interval '1 s'"),
    ("links", "the audit log does not know of a link",
     "DELETE FROM workspaces_auditentry WHERE action = 'link.approve'"),
    ("links", "a link was used and can be used again", "UPDATE workspaces_actionlink SET used_at = NULL"),
    ("link-answers", "a link approved other arguments",
     "UPDATE workspaces_actionlink SET arguments_hash = repeat('0', 64)"),
    ("link-answers", "somebody else approved", "UPDATE workspaces_approval SET given_by_id = 0"),
    ("signalled-incidents", "an incident was not signalled",
     "DELETE FROM workspaces_alertsignal WHERE task_id = {done} AND kind = 'incident'"),
    ("signalled-incidents", "an incident got graver in silence",
     "UPDATE workspaces_incident SET severity = 'critical' WHERE task_id = {done}"),
    ("signalled-questions", "a question was not signalled",
     "DELETE FROM workspaces_alertsignal WHERE task_id = {waiting} AND kind = 'escalation_opened'"),
    ("signalled-questions", "nobody told that a question was answered",
     "DELETE FROM workspaces_alertsignal WHERE task_id = {done} AND kind = 'escalation_opened' AND edge = 'ended'"),
    ("signalled-questions", "a question went to an owner in silence",
     "UPDATE workspaces_escalation SET raised_at = now() WHERE task_id = {waiting} AND status = 'open'"),
    ("signalled-ends", "a success was not signalled",
     "DELETE FROM workspaces_alertsignal WHERE task_id = {done} AND kind = 'task_finished'"),
    ("signalled-ends", "a failure outlasts it",
     "UPDATE workspaces_alertsignal SET kind = 'task_failed', subject = 'failed:' || task_id, edge = 'began'"
     " WHERE task_id = {done} AND kind = 'task_finished'"),
    ("signalled-budgets", "a budget is used up in silence", "UPDATE workspaces_budgetaccount SET exhausted_at = now()"),
    ("alert-troubles", "an alert counts one too many", "UPDATE workspaces_alert SET troubles = troubles + 1"),
    ("alert-troubles", "a trouble ended and nobody counted", "UPDATE workspaces_alertmember SET ended_at = now()"),
    ("alert-once", "a group has two open alerts",
     "ALTER TABLE workspaces_alert ALTER group_key SET DEFAULT ''; DROP INDEX alert_once_while_open;"
     "UPDATE workspaces_alert SET group_key = 'one', state = 'open', resolved_at = NULL"),
    ("alert-ends", "an alert ended by itself and something goes on in it",
     "UPDATE workspaces_alert SET state = 'resolved', resolved_at = now() WHERE active > 0"),
    ("alert-ends", "an alert is open and nothing goes on in it", "UPDATE workspaces_alert SET active = 0"),
    ("alert-history", "a change is gone", "DELETE FROM workspaces_alertchange WHERE kind = 'opened'"),
    ("alert-history", "an alert was opened in silence",
     "UPDATE workspaces_alert SET state = 'open' WHERE state = 'acknowledged'"),
    ("alert-history", "it came back and no change says so", "UPDATE workspaces_alert SET reopened = reopened + 1"),
    ("delivery-tries", "a try is gone", "DELETE FROM workspaces_deliveryattempt"),
    ("delivery-tries", "a try has another's number", "UPDATE workspaces_deliveryattempt SET number = number + 1"),
    ("delivery-ends", "it was delivered and nobody took it",
     "UPDATE workspaces_deliveryattempt SET outcome = 'refused', status = 500"),
    ("delivery-ends", "it was given up without a word", "UPDATE workspaces_delivery SET state = 'failed', error = ''"),
    ("delivery-ends", "it is pending and has an end", "UPDATE workspaces_delivery SET state = 'pending'"),
    ("delivery-order", "a later one was sent before an earlier one had arrived",
     "UPDATE workspaces_delivery SET finished_at = now() + interval '1 day' WHERE number = 1"),
    ("delivery-order", "a later one was sent while an earlier one was pending",
     "UPDATE workspaces_delivery SET state = 'pending', finished_at = NULL WHERE number = 1"),
    ("delivery-words", "it says something else than its change",
     "UPDATE workspaces_delivery SET body = jsonb_set(body, '{{data,alert,title}}', '\"all is well\"')"),
    ("delivery-words", "it is of another type", "UPDATE workspaces_delivery SET type = 'alert.resolved.v1'"),
    ("delivery-endpoints", "it waits for an endpoint that is gone",
     "UPDATE workspaces_delivery SET state = 'pending', finished_at = NULL;"
     "UPDATE workspaces_endpoint SET state = 'removed'"),
    ("alert-told", "a delivery is gone", "DELETE FROM workspaces_delivery"),
    ("alert-told", "a delivery tells of another change", "UPDATE workspaces_delivery SET number = number + 1"),
    ("alert-told", "a delivery tells what was to be told to nobody",
     "UPDATE workspaces_alertchange SET payload = '{{}}'"),
    ("alert-answers", "nobody wrote down who acknowledged",
     "DELETE FROM workspaces_auditentry WHERE action = 'alert.acknowledge'"),
    ("alert-answers", "an alert was acknowledged by nobody",
     "UPDATE workspaces_alertchange SET actor_id = NULL, via = 'runtime' WHERE kind = 'acknowledged'"),
    ("alert-answers", "an alert names another person",
     "UPDATE workspaces_alert SET acknowledged_by_id = NULL WHERE state = 'acknowledged'"),
    ("alert-incidents", "an incident was resolved behind an alert's back",
     "UPDATE workspaces_incident SET state = 'resolved', resolved_at = now() WHERE task_id = {done}"),
    ("signalled-budgets", "a threshold was passed in silence", "UPDATE workspaces_budgetaccount SET alerted ="
     " jsonb_build_array(jsonb_build_object('percent', 50, 'at', now()))"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sql"), [pytest.param(rule, sql, id=f"{rule}: {how}") for rule, how, sql in WAYS])
def test_each_way_to_break_a_history_is_found_by_its_rule(ids: dict[str, int], rule: str, sql: str) -> None:
    damage(sql, ids)
    assert broken_rules().get(rule, 0) > 0


def test_there_is_a_way_to_break_every_rule() -> None:
    assert {rule for rule, _, _ in WAYS} == {rule.name for rule in RULES}


def told(*arguments: Any) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("verify", *arguments, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_the_command_prints_a_line_a_rule_and_ends_with_one_when_something_is_broken(ids: dict[str, int]) -> None:
    status, text = told()
    assert status == 0
    assert f"{len(RULES)} rules, 0 broken" in text
    damage("DELETE FROM workspaces_event WHERE task_id = {done} AND seq = 7", ids)
    status, text = told()
    assert status == 1
    line = next(line for line in text.splitlines() if line.split()[1:2] == ["seq"])
    assert line.startswith("BROKEN")
    assert f"task {ids['done']}: " in text


def test_one_task_is_checked_alone(ids: dict[str, int]) -> None:
    damage("DELETE FROM workspaces_event WHERE task_id = {done} AND seq = 7", ids)
    status, text = told(str(ids["waiting"]), "--json")
    assert (status, json.loads(text)["broken"]) == (0, 0)
    assert told(str(ids["done"]))[0] == 1
    with pytest.raises(CommandError, match="no task"):
        told("999999")


def test_deep_reads_every_saved_disk(ids: dict[str, int]) -> None:
    status, text = told("--deep", "--json")
    disks = json.loads(text)["rules"][-1]
    assert (status, disks["name"], disks["broken"]) == (0, "disks", 0)
    assert disks["checked"] >= 5
    task = Task.objects.get(pk=ids["waiting"])
    newest = Checkpoint.objects.filter(task=task).order_by("seq").last()
    assert newest is not None
    store: Any = driver_for(task.workspace).snapshots
    kept = store.objects.root.with_name("kept")
    shutil.copytree(store.objects.root, kept)
    try:
        store.drop(newest.snapshot.ref)
        status, text = told(str(task.pk), "--deep", "--json")
        assert status == 1
        assert [row["task_id"] for row in json.loads(text)["rules"][-1]["rows"]] == [task.pk]
        assert told(str(task.pk))[0] == 0
    finally:
        shutil.rmtree(store.objects.root)
        kept.rename(store.objects.root)
    assert not store.problems(Snapshot.objects.values_list("ref", flat=True))
