"""The facts of the structural audit, counted: for one task, or for the newest that a person may see. Writes nothing.

What is asked of events is asked of a bounded number of tasks, so that the page costs the same on an old installation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.db.models import Count, Q, Sum

from workspaces.domain.audit_detectors import acts, finds
from workspaces.domain.audit_facts import Facts, ToolsFacts
from workspaces.domain.detection import detection_of
from workspaces.domain.events import EventKind
from workspaces.domain.incidents import IncidentKind, IncidentState
from workspaces.domain.isolation import NetworkMode
from workspaces.domain.results import ResultClass
from workspaces.domain.states import (
    Circuit,
    ClaimState,
    EscalationKind,
    EscalationStatus,
    ModelCallStatus,
    NoticeKind,
    Verdict,
    WaitingFor,
)
from workspaces.models import (
    Approval,
    Branch,
    Budget,
    Checkpoint,
    Escalation,
    Event,
    Incident,
    LearnedWindow,
    LedgerEntry,
    Message,
    ModelCall,
    ProfileVersion,
    QuotaClaim,
    QuotaNotice,
    QuotaPool,
    ScratchpadEdit,
    Step,
    Task,
    ToolCall,
    ToolDefinition,
    User,
    Workspace,
)
from workspaces.models.budgets import SCOPED

from .access import visible_tasks
from .calibration import calibration_of
from .contexts import NotRebuilt, request_of
from .integrity import broken_chain

SITE_TASKS = 300  # the newest; the page says so
CHECKED_EVENTS = 3_000  # a longer chain is left to `manage.py verify`
REBUILT_STEPS = 3
CALIBRATIONS = 8  # models that are looked at
APPEND_ONLY = ("event", "message")  # of the trace; `manage.py verify` looks at every such table


def facts_of_task(task: Task) -> Facts:
    breaks = broken_chain(task.pk) if task.last_seq <= CHECKED_EVENTS else None
    return _facts([task.pk], task=task.pk, breaks=breaks)


def facts_of_site(user: User | AnonymousUser) -> Facts:
    """Over the newest SITE_TASKS that the user may see."""
    ids = list(visible_tasks(user).order_by("-pk").values_list("pk", flat=True)[:SITE_TASKS])
    return _facts(ids, task=None, breaks=None)


def _facts(ids: Sequence[int], *, task: int | None, breaks: int | None) -> Facts:
    counts: dict[str, Any] = {}
    counts |= _history(ids)
    counts |= _effects(ids)
    counts |= _provider(ids)
    counts |= _quota(ids)
    counts |= _budgets(ids)
    counts |= _calls(ids)
    counts |= _context(ids)
    counts |= _people(ids)
    return Facts(
        task=task,
        tasks=len(ids),
        append_only=_append_only(),
        chain_checked=breaks is not None,
        chain_breaks=breaks or 0,
        incidents=dict(Incident.objects.filter(task__in=ids).order_by().values_list("kind").annotate(Count("pk"))),
        tools=_tools(ids),
        **counts,
    )


def _append_only() -> tuple[str, ...]:
    """The tables whose trigger against rewriting is there and switched on."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE tgname = ANY(%s) AND tgenabled <> 'D' AND NOT tgisinternal",
            [[f"workspaces_{table}_append_only" for table in APPEND_ONLY]],
        )
        found = {name for (name,) in cursor.fetchall()}
    return tuple(table for table in APPEND_ONLY if f"workspaces_{table}_append_only" in found)


def _history(ids: Sequence[int]) -> dict[str, Any]:
    tasks = Task.objects.filter(pk__in=ids)
    saved = Checkpoint.objects.filter(task__in=ids).aggregate(
        checkpoints=Count("pk"), restorable=Count("pk", filter=Q(snapshot__dropped_at=None))
    )
    places = Workspace.objects.filter(tasks__in=ids).distinct()
    sandbox = Escalation.objects.filter(task__in=ids, kind=EscalationKind.SANDBOX.value)
    return {
        **saved,
        "events": tasks.aggregate(sum=Sum("last_seq"))["sum"] or 0,
        "messages": Message.objects.filter(task__in=ids).count(),
        "branches": Branch.objects.filter(task__in=ids).count(),
        "forks": tasks.filter(forked_from__isnull=False).count(),
        "tasks_without_checkpoint": tasks.filter(steps_taken__gt=0, checkpoints=None).count(),
        "workspaces": places.count(),
        "local_workspaces": places.filter(driver=Workspace.Driver.LOCAL.value).count(),
        "open_networks": places.filter(network=NetworkMode.OPEN.value).count(),
        "snapshot_failures": sandbox.count(),
        "full_disks": sandbox.filter(question__icontains="room").count(),
        "taken_over": Event.objects.filter(task__in=ids, kind=EventKind.TASK_TAKEN_OVER.value).count(),
    }


def _effects(ids: Sequence[int]) -> dict[str, Any]:
    state = LedgerEntry.State
    ledger = LedgerEntry.objects.filter(tool_call__task__in=ids)
    return ledger.aggregate(
        ledger_completed=Count("pk", filter=Q(state=state.COMPLETED.value)),
        ledger_unknown=Count("pk", filter=Q(state=state.UNKNOWN.value)),
    )


def _provider(ids: Sequence[int]) -> dict[str, Any]:
    replied = Q(status=ModelCallStatus.REPLIED.value)
    failed = Q(status=ModelCallStatus.FAILED.value)
    found = ModelCall.objects.filter(task__in=ids).aggregate(
        model_calls=Count("pk", filter=replied),
        calls_without_usage=Count("pk", filter=replied & Q(input_tokens=None)),
        unpriced=Count("pk", filter=replied & Q(cost_usd=None)),
        provider_failures=Count("pk", filter=failed),
        rate_limits=Count("pk", filter=failed & Q(error_kind="rate_limit")),
    )
    waits = Event.objects.filter(task__in=ids, kind=EventKind.TASK_WAITING.value).aggregate(
        quota_waits=Count("pk", filter=Q(data__waiting_for=WaitingFor.QUOTA.value)),
        budget_waits=Count("pk", filter=Q(data__waiting_for=WaitingFor.BUDGET.value)),
    )
    return {**found, **waits}


def _quota(ids: Sequence[int]) -> dict[str, Any]:
    calls = ModelCall.objects.filter(task__in=ids, status=ModelCallStatus.REPLIED.value, pool__isnull=False)
    pools = QuotaPool.objects.filter(pk__in=calls.values("pool"))
    notices = QuotaNotice.objects.filter(pool__in=calls.values("pool")).aggregate(
        circuits_opened=Count("pk", filter=Q(kind=NoticeKind.CIRCUIT_OPENED.value)),
        fallbacks=Count("pk", filter=Q(kind=NoticeKind.FALLBACK.value, task__in=ids)),
    )
    return {
        **pools.aggregate(
            pools=Count("pk"),
            pools_unlimited=Count("pk", filter=Q(limits={}, learned={})),
            pools_not_closed=Count("pk", filter=~Q(circuit=Circuit.CLOSED.value)),
        ),
        **notices,
        "pooled_calls": calls.count(),
        "queued_now": QuotaClaim.objects.filter(task__in=ids, state=ClaimState.WAITING.value).count(),
    }


def _budgets(ids: Sequence[int]) -> dict[str, Any]:
    """Those in force above the tasks. A fork draws on the budgets of what it was forked from."""
    standing: dict[tuple[str, int | None], set[int]] = defaultdict(set)
    for pk, *named in Budget.objects.filter(ended_at=None).values_list("pk", *SCOPED):
        scope, of = next(((name, of) for name, of in zip(SCOPED, named, strict=True) if of), ("site", None))
        standing[scope, of].add(pk)
    if not standing:
        return {"budgets": 0, "tasks_with_budget": 0}
    rows = Task.objects.filter(pk__in=ids).values_list(
        "pk", "root", "created_by", "profile_version__profile", "workspace"
    )
    lines = _lines_of(row[-1] for row in rows)
    used: set[int] = set()
    covered = 0
    for pk, root, user, profile, workspace in rows:
        keys = [("site", None), ("user", user), ("profile", profile), ("task", pk), ("task", root)]
        above = set().union(*(standing.get(key, ()) for key in keys + [("workspace", of) for of in lines[workspace]]))
        used |= above
        covered += bool(above)
    return {"budgets": len(used), "tasks_with_budget": covered}


def _lines_of(workspaces: Iterable[int]) -> dict[int, list[int]]:
    """Each workspace with those that it was forked from. One query for each generation."""
    lines = {pk: [pk] for pk in workspaces}
    while True:
        ends = {line[-1] for line in lines.values()}
        forks = Workspace.objects.filter(pk__in=ends).values_list("pk", "forked_from")
        parents = {pk: parent for pk, parent in forks if parent is not None}
        longer = [line for line in lines.values() if line[-1] in parents]
        for line in longer:
            line.append(parents[line[-1]])
        if not longer:
            return lines


def _calls(ids: Sequence[int]) -> dict[str, Any]:
    hollow = [ResultClass.EMPTY.value, ResultClass.AMBIGUOUS.value, ResultClass.TRUNCATED.value]
    found = ToolCall.objects.filter(task__in=ids).aggregate(
        tool_calls=Count("pk"),
        results_without_hash=Count("pk", filter=Q(result_hash="", status="done")),
        corrected=Count("pk", filter=Q(verdict=Verdict.CORRECT.value)),
        held=Count("pk", filter=Q(verdict=Verdict.HOLD.value)),
        replayed=Count("pk", filter=Q(verdict=Verdict.REPLAY.value)),
        hollow=Count("pk", filter=Q(result_class__in=hollow)),
    )
    refused = Event.objects.filter(task__in=ids, kind=EventKind.NETWORK_CONNECTION.value, data__allowed=False)
    return {
        **found,
        "approvals_used": Approval.objects.filter(tool_call__task__in=ids, used_at__isnull=False).count(),
        "network_refusals": refused.count(),
    }


def _context(ids: Sequence[int]) -> dict[str, Any]:
    steps = Step.objects.filter(task__in=ids)
    found = steps.aggregate(steps=Count("pk"), steps_with_manifest=Count("pk", filter=~Q(manifest={})))
    rebuilt = equal = 0
    trouble = ""
    for step in steps.exclude(manifest={}).order_by("-pk")[:REBUILT_STEPS]:
        try:
            equal += request_of(step).exact
            rebuilt += 1
        except NotRebuilt as error:
            trouble = str(error)
    receipts = Event.objects.filter(task__in=ids, kind=EventKind.CONTEXT_COMPACTED.value)
    used = ProfileVersion.objects.filter(tasks__in=ids).distinct().order_by("-pk")[:CALIBRATIONS]
    known = {(version.provider, version.base_url, version.model): calibration_of(version).samples for version in used}
    learned = LearnedWindow.objects.filter(profile_version__tasks__in=ids).distinct()
    return {
        **found,
        "rebuilt": rebuilt,
        "rebuilt_equal": equal,
        "not_rebuilt": trouble,
        "compactions": receipts.count(),
        "models": len(known),
        "calibrated_models": sum(samples > 0 for samples in known.values()),
        "learned_windows": learned.exclude(incident__state=IncidentState.RESOLVED.value).count(),
    }


def _people(ids: Sequence[int]) -> dict[str, Any]:
    questions = Escalation.objects.filter(task__in=ids).aggregate(
        questions=Count("pk"), questions_expired=Count("pk", filter=Q(status=EscalationStatus.EXPIRED.value))
    )
    nudged = Incident.objects.filter(task__in=ids, nudges__gt=0)
    ended = Q(scratchpad__has_key="exit_condition") | Q(scratchpad__has_key="exit condition")
    return {
        **questions,
        "note_versions": ScratchpadEdit.objects.filter(task__in=ids).count(),
        "exit_conditions": Task.objects.filter(ended, pk__in=ids).count(),
        **nudged.aggregate(
            nudges=Count("pk"),
            nudges_helped=Count("pk", filter=Q(nudge_helped=True)),
        ),
    }


def _tools(ids: Sequence[int]) -> ToolsFacts:
    versions = list(
        ProfileVersion.objects.filter(tasks__in=ids).select_related("profile").distinct().order_by("profile", "number")
    )
    detections = [detection_of(version.detectors) for version in versions]
    declared = {tool["name"]: tool for version in versions for tool in version.declared_tools if "name" in tool}
    return ToolsFacts(
        versions=len(versions),
        with_policy=sum(bool(version.policy) for version in versions),
        detectors=tuple(
            (
                kind.value,
                sum(finds(each, kind) and acts(each) for each in detections),
                sum(finds(each, kind) and not acts(each) for each in detections),
            )
            for kind in IncidentKind
        ),
        acting=sum(acts(each) for each in detections),
        declared=tuple(declared),
        without_output_rule=tuple(name for name, tool in declared.items() if not tool.get("output_required")),
        open_commands=_open_commands(ids),
        http=tuple(str(version) for version in versions if version.http.get("allow")),
        mcp_servers=len(
            {(version.profile_id, server["name"]) for version in versions for server in version.mcp_servers}
        ),
        mcp_unpinned=_withheld(versions),
    )


def _withheld(versions: Sequence[ProfileVersion]) -> int:
    """Definitions that servers of these profiles offer and nobody has accepted."""
    profiles = {version.profile_id for version in versions if version.mcp_servers}
    waiting = ToolDefinition.State.QUARANTINED.value
    return ToolDefinition.objects.filter(server__profile__in=profiles, state=waiting, offered=True).count()


def _open_commands(ids: Sequence[int]) -> tuple[str, ...]:
    """Profile versions whose commands run where the network is open."""
    used = (
        ProfileVersion.objects.filter(tasks__in=ids, tasks__workspace__network=NetworkMode.OPEN.value)
        .filter(Q(tools__contains="shell") | ~Q(declared_tools=[]))
        .select_related("profile")
        .distinct()
    )
    return tuple(str(version) for version in used)
