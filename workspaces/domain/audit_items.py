"""The audit's items, failure by failure: what is there, what is missing, and why. Pure.

What is said of a mechanism is said of this installation: a control that exists in the code and is switched off here,
or that something goes round, is partial or missing.
"""

from __future__ import annotations

from workspaces.domain.audit_facts import Facts, Item, Presence, Proof, ToolsFacts
from workspaces.domain.audit_quota import budgets
from workspaces.domain.audit_words import (
    artifact,
    control,
    detector,
    ladder,
    listed,
    n,
    open_to,
    page,
    times,
    trace,
)
from workspaces.domain.incidents import Cluster, IncidentKind

P, C, K = Presence, Cluster, IncidentKind


def lost_history(facts: Facts) -> list[Item]:
    whole = "event" in facts.append_only and "message" in facts.append_only
    chain = f"{n(facts.events, 'event')} of {n(facts.tasks, 'task')}, each with the hash of the one before"
    if not whole:
        chained = P.PARTIAL, f"{chain}; but the database does not refuse to change them: its triggers are gone"
    elif facts.chain_breaks:
        chained = P.MISSING, f"{chain}; the chain is broken at {n(facts.chain_breaks, 'place')}"
    else:
        checked = ", checked just now" if facts.chain_checked else "; `manage.py verify` checks them all"
        chained = P.PRESENT, f"{chain}; the database refuses to change or delete one{checked}"
    isolated = facts.workspaces - facts.local_workspaces
    return [
        artifact("Event log, chained by hash", *chained, trace(facts), C.LONG_HORIZON, C.MEASUREMENT),
        artifact(
            "Checkpoints that can be restored", *_checkpoints(facts), page(facts, "checkpoints", "Checkpoints"),
            C.LONG_HORIZON,
        ),
        artifact(
            "Messages, never edited",
            P.PRESENT if facts.messages and whole else P.PARTIAL if facts.messages else P.MISSING,
            f"{n(facts.messages, 'message')} kept as written" if facts.messages else "no message was written yet",
            trace(facts, group="people", words="Messages"), C.LONG_HORIZON,
        ),
        artifact(
            "Effect ledger",
            P.PARTIAL if facts.ledger_unknown else P.PRESENT,
            f"{n(facts.ledger_completed, 'completed effect')}"
            + (f", {facts.ledger_unknown} of unknown outcome" if facts.ledger_unknown else ", none of unknown outcome"),
            page(facts, "calls", "Calls"), C.TOOL_USE, C.SAFETY,
        ),
        control(
            "Roll back and fork",
            P.MISSING if not facts.restorable else P.PRESENT,
            f"{n(facts.restorable, 'checkpoint')} can be gone back to" if facts.restorable
            else "there is no checkpoint that can be gone back to",
            page(facts, "checkpoints", "Checkpoints"), C.LONG_HORIZON,
        ),
        control(
            "Another worker goes on",
            P.PRESENT,
            f"leases and fences; {times(facts.taken_over)}",
            trace(facts, group="state", words="State events"), C.LONG_HORIZON,
        ),
        control(
            "A completed effect is replayed, not repeated",
            P.PARTIAL if facts.open_networks else P.PRESENT,
            f"{times(facts.replayed)}"
            + (f"; but {open_to(facts)} by commands that the ledger does not see" if facts.open_networks else ""),
            page(facts, "calls", "Calls"), C.TOOL_USE, C.SAFETY,
        ),
        control(
            "Isolated sandboxes",
            P.PRESENT if isolated == facts.workspaces else P.PARTIAL if isolated else P.MISSING,
            f"{n(facts.local_workspaces, 'workspace')} of {facts.workspaces} run on the machine itself: what is "
            "started there can change anything, also what checkpoints keep"
            if facts.local_workspaces
            else f"{n(facts.workspaces, 'workspace')} in containers, none on the machine itself",
            (Proof("Workspaces", "workspaces"),), C.SAFETY,
        ),
    ]  # fmt: skip


def _checkpoints(facts: Facts) -> tuple[Presence, str]:
    dropped = facts.checkpoints - facts.restorable
    if not facts.checkpoints:
        return (P.MISSING, "none was saved") if facts.steps else (P.PARTIAL, "no step was taken yet, so none was due")
    told = [f"{facts.restorable:,} of {facts.checkpoints:,} can be restored"]
    if dropped:
        told.append(f"the files of {dropped:,} are no longer kept, as the profile's retention says")
    if facts.tasks_without_checkpoint:
        told.append(f"{n(facts.tasks_without_checkpoint, 'task')} took steps and has none")
    if facts.full_disks:
        told.append(f"{n(facts.full_disks, 'snapshot')} failed because no disk space was left")
    if facts.snapshot_failures:
        told.append(f"{n(facts.snapshot_failures, 'snapshot')} failed in all")
    if facts.local_workspaces:
        told.append(
            f"{n(facts.local_workspaces, 'workspace')} without isolation: files there can be changed from outside"
        )
    if not facts.restorable:
        return P.MISSING, "; ".join(told)
    return (P.PRESENT if len(told) == 1 else P.PARTIAL), "; ".join(told)


def loop(facts: Facts) -> list[Item]:
    hashed = facts.tool_calls - facts.results_without_hash
    return [
        artifact(
            "Calls with the hashes of arguments and result",
            P.PRESENT if not facts.results_without_hash else P.PARTIAL if hashed else P.MISSING,
            f"{n(facts.tool_calls, 'tool call')}, each comparable with every other"
            if not facts.results_without_hash
            else f"{facts.results_without_hash:,} of {facts.tool_calls:,} calls are from before results were hashed",
            page(facts, "calls", "Calls"), C.PLANNING, C.LONG_HORIZON,
        ),
        detector(facts, "Loop detector", (K.LOOP,), C.PLANNING, C.LONG_HORIZON),
        ladder(facts),
        control(
            "Step limit",
            P.PRESENT,
            "every task has one; at its end a person is asked to raise it or to give up",
            page(facts, "questions", "Questions"), C.LONG_HORIZON,
        ),
    ]  # fmt: skip


def paralysis(facts: Facts) -> list[Item]:
    exits = facts.exit_conditions
    return [
        artifact(
            "Scratchpad: plan, attempts, contradictions",
            P.PRESENT if facts.note_versions else P.PARTIAL,
            f"{n(facts.note_versions, 'version')} kept" if facts.note_versions
            else "it can be written by agent and operator; nobody has written to it here",
            page(facts, "scratchpad", "Scratchpad"), C.PLANNING,
        ),
        artifact(
            "Exit condition",
            P.PRESENT if exits and exits == facts.tasks else P.PARTIAL if exits else P.MISSING,
            f"{exits} of {n(facts.tasks, 'task')} say when the work is over",
            page(facts, "scratchpad", "Scratchpad"), C.PLANNING, C.MEASUREMENT,
        ),
        detector(
            facts, "Detectors of standstill and contradiction",
            (K.PARALYSIS, K.NO_PROGRESS, K.CONTRADICTION), C.PLANNING,
        ),
        control(
            "A question to a person, with a deadline",
            P.PARTIAL if facts.questions_expired else P.PRESENT,
            f"{n(facts.questions, 'question')} asked"
            + (f", {facts.questions_expired} expired unanswered" if facts.questions_expired else ""),
            page(facts, "questions", "Questions"), C.PLANNING,
        ),
    ]  # fmt: skip


def truncation(facts: Facts) -> list[Item]:
    missing = facts.steps - facts.steps_with_manifest
    counted = facts.model_calls - facts.calls_without_usage
    return [
        artifact(
            "Manifest of what each step was sent",
            P.PRESENT if not missing else P.PARTIAL if facts.steps_with_manifest else P.MISSING,
            f"{facts.steps_with_manifest:,} of {n(facts.steps, 'step')}",
            page(facts, "context", "Context"), C.LONG_HORIZON, C.MEASUREMENT,
        ),
        artifact("Requests rebuilt to the last byte", *_rebuilt(facts), page(facts, "context", "Context"),
                  C.LONG_HORIZON, C.MEASUREMENT),
        artifact(
            "The provider's own token counts",
            P.PRESENT if counted and not facts.calls_without_usage else P.PARTIAL if counted else P.MISSING,
            "no model was asked yet" if not facts.model_calls
            else f"reported for {counted:,} of {n(facts.model_calls, 'call')}"
            + ("" if not facts.calls_without_usage else "; for the others a truncation cannot be told from the counts"),
            page(facts, "context", "Tokens and cost"), C.MEASUREMENT,
        ),
        artifact(
            "Receipts of what was left out",
            P.PRESENT,
            f"{n(facts.compactions, 'receipt')}: what went, where the whole lies, tokens before and after",
            trace(facts, group="model", words="Model events"), C.LONG_HORIZON,
        ),
        detector(facts, "Truncation detector", (K.TRUNCATION, K.CONTEXT_FULL), C.LONG_HORIZON),
        control(
            "Token estimates calibrated by the provider's counts",
            P.PRESENT if facts.models and facts.calibrated_models == facts.models else P.PARTIAL,
            f"{facts.calibrated_models} of {n(facts.models, 'model')} in use"
            + ("" if facts.calibrated_models == facts.models
               else "; for the others the provider has counted too few calls yet, so characters are counted")
            + (f"; {n(facts.learned_windows, 'smaller window')} learned and kept to" if facts.learned_windows else ""),
            page(facts, "context", "Context"), C.MEASUREMENT,
        ),
        control(
            "Too large a request is not sent",
            P.PRESENT,
            "it waits for a person instead of being cut in silence",
            page(facts, "questions", "Questions"), C.LONG_HORIZON,
        ),
    ]  # fmt: skip


def _rebuilt(facts: Facts) -> tuple[Presence, str]:
    if not facts.rebuilt and not facts.not_rebuilt:
        return P.PARTIAL, "no step was looked at: none was sent yet"
    if facts.rebuilt_equal == facts.rebuilt and facts.rebuilt:
        tail = f"; {facts.not_rebuilt}" if facts.not_rebuilt else ""
        presence = P.PARTIAL if facts.not_rebuilt else P.PRESENT
        return presence, f"{n(facts.rebuilt, 'step')} rebuilt just now, hash equal{tail}"
    if not facts.rebuilt:
        return P.MISSING, facts.not_rebuilt
    return (
        P.PARTIAL,
        f"of {facts.rebuilt} steps rebuilt just now {facts.rebuilt - facts.rebuilt_equal} differ from what was sent",
    )


def bad_call(facts: Facts) -> list[Item]:
    tools = facts.tools
    return [
        artifact(
            "Verdict and evidence of each call",
            P.PRESENT,
            f"{n(facts.tool_calls, 'call')} judged before they ran, {facts.corrected} sent back, {facts.held} held",
            page(facts, "calls", "Calls"), C.TOOL_USE,
        ),
        artifact(
            "Named results",
            P.PARTIAL if tools.without_output_rule else P.PRESENT,
            f"{n(facts.hollow, 'result')} named empty, ambiguous or truncated"
            + (f"; an empty output of {listed(tools.without_output_rule)} passes for success: no rule requires one"
               if tools.without_output_rule else ""),
            page(facts, "calls", "Calls"), C.TOOL_USE, C.MEASUREMENT,
        ),
        control(
            "The gate: unknown tools and wrong arguments go back",
            P.PRESENT,
            "with the path and the reason, before anything runs",
            page(facts, "calls", "Calls"), C.TOOL_USE,
        ),
        control(
            "Approval of what cannot be undone",
            P.PARTIAL if facts.open_networks else P.PRESENT,
            f"bound to the exact arguments, used once; {n(facts.approvals_used, 'approval')} used"
            + (f"; but {open_to(facts)} without any approval" if facts.open_networks else ""),
            page(facts, "questions", "Questions"), C.SAFETY, C.TOOL_USE,
        ),
        control(
            "A policy of its own",
            P.PRESENT if tools.versions and tools.with_policy == tools.versions else P.PARTIAL,
            f"{tools.with_policy} of {n(tools.versions, 'profile version')} with rules; others hold the irreversible",
            (Proof("Profiles", "profiles"),), C.SAFETY, C.TOOL_USE,
        ),
        control(
            "Tools that go through the gate",
            P.PARTIAL if tools.open_commands else P.PRESENT,
            f"commands of {listed(tools.open_commands)} reach the network by themselves, past gate and ledger"
            if tools.open_commands else "no command of an agent reaches the network by itself",
            (Proof("Workspaces", "workspaces"),), C.SAFETY,
        ),
        control(
            "HTTP only where the profile allows",
            P.PRESENT,
            f"{listed(tools.http)} may, to the hosts of their lists; what may change something there is in the ledger"
            if tools.http else "no profile in use may make HTTP requests",
            (Proof("Profiles", "profiles"),), C.SAFETY, C.TOOL_USE,
        ),
        control("Pinned definitions of MCP tools", *_pins(tools), (Proof("Profiles", "profiles"),), C.SAFETY),
        detector(
            facts, "Detectors of hollow results and false claims", (K.BAD_CALL, K.HOLLOW_RESULT, K.FALSE_CLAIM),
            C.TOOL_USE, C.MEASUREMENT,
        ),
    ]  # fmt: skip


def _pins(tools: ToolsFacts) -> tuple[Presence, str]:
    if not tools.mcp_servers:
        return P.PRESENT, "no profile in use has an MCP server"
    if tools.mcp_unpinned:
        told = f"{n(tools.mcp_unpinned, 'definition')} withheld until a person accepts"
        return P.PARTIAL, f"{told}; {n(tools.mcp_servers, 'server')} in all"
    return P.PRESENT, f"{n(tools.mcp_servers, 'server')}; each definition that agents see was accepted by a person"


def compounding(facts: Facts) -> list[Item]:
    return [
        artifact(
            "Lineage: who was forked from whom, from where",
            P.PRESENT,
            f"{n(facts.branches, 'branch', 'branches')}, {n(facts.forks, 'fork')}; each says at which event it began",
            page(facts, "checkpoints", "Branches"), C.COORDINATION,
        ),
        artifact(
            "Failure and cost by length and by agents",
            P.PRESENT if facts.tasks > 1 else P.PARTIAL,
            f"from {n(facts.tasks, 'task')}, with the count behind each point",
            (Proof("Compounding", "compounding"),), C.LONG_HORIZON, C.MEASUREMENT,
        ),
        artifact(
            "The same cause over versions",
            P.PRESENT if sum(facts.incidents.values()) else P.PARTIAL,
            "counted before and after each change of a profile" if sum(facts.incidents.values())
            else "no incident was found yet that could come back",
            (Proof("Recurrence", "recurrence"),), C.MEASUREMENT,
        ),
        control(
            "One writer a workspace",
            P.PRESENT,
            "a workspace's disk is held by one task; a fork gets a copy of its own",
            (Proof("Workspaces", "workspaces"),), C.COORDINATION,
        ),
        budgets(facts),
    ]  # fmt: skip


def clusters_only(facts: Facts) -> list[Item]:
    """What belongs to a cluster and to none of the seven."""
    refused = f"; {n(facts.network_refusals, 'connection')} refused" if facts.network_refusals else ""
    return [
        control(
            "Network closed or by an allow-list",
            P.PARTIAL if facts.open_networks else P.PRESENT,
            (f"{open_to(facts)}" if facts.open_networks else "no workspace's network is open") + refused,
            (Proof("Workspaces", "workspaces"),), C.SAFETY,
        ),
        control(
            "What is read is told apart from what is ordered",
            P.MISSING,
            "text from files and pages is not screened for instructions: the gate alone bounds what it can bring about",
            (), C.SAFETY,
        ),
        control(
            "Agents that talk to one another",
            P.MISSING,
            "tasks cannot start or ask others yet: what they share is a workspace, one after the other",
            (), C.COORDINATION,
        ),
        control(
            "Success judged by somebody else than the agent",
            P.MISSING,
            "a task has succeeded when its agent says so; nobody else grades its work",
            (), C.MEASUREMENT,
        ),
    ]  # fmt: skip
