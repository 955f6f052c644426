"""What the structural audit is made of: the facts that go in, and the items that come out. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workspaces.domain.incidents import Cluster


class Presence(StrEnum):
    PRESENT = "present"
    PARTIAL = "partial"
    MISSING = "missing"


class Role(StrEnum):
    ARTIFACT = "artifact"  # shows what happened
    CONTROL = "control"  # stops it from happening again


@dataclass(frozen=True, slots=True)
class Proof:
    """Rows behind an item. `page` is a name that the web layer makes an address of, with `of`'s values in it."""

    words: str
    page: str
    of: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    role: Role
    name: str
    presence: Presence
    why: str
    proofs: tuple[Proof, ...] = ()
    clusters: frozenset[Cluster] = frozenset()


@dataclass(frozen=True, slots=True)
class ToolsFacts:
    """What the profile versions in use let their agents do. Names are of tools or profiles."""

    versions: int = 0
    with_policy: int = 0
    declared: tuple[str, ...] = ()
    without_output_rule: tuple[str, ...] = ()  # declared tools whose empty output passes for success
    open_commands: tuple[str, ...] = ()  # versions with shell or declared tools, in a workspace whose network is open
    mcp_servers: int = 0
    mcp_unpinned: int = 0
    http: tuple[str, ...] = ()  # versions that may make HTTP requests, to what their lists name
    acting: int = 0  # versions whose findings are told to the model or to a person
    # (kind of incident, versions that find it and act, versions that find it and only write it down)
    detectors: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Counts over the tasks in question: one, or the newest that a person may see."""

    task: int | None = None  # the one task that is audited
    tasks: int = 0
    events: int = 0
    append_only: tuple[str, ...] = ()  # tables whose rows the database refuses to change
    chain_checked: bool = False
    chain_breaks: int = 0
    messages: int = 0
    steps: int = 0
    branches: int = 0
    checkpoints: int = 0
    restorable: int = 0
    tasks_without_checkpoint: int = 0  # of those that took a step
    local_workspaces: int = 0
    workspaces: int = 0
    snapshot_failures: int = 0
    full_disks: int = 0
    taken_over: int = 0
    ledger_completed: int = 0
    ledger_unknown: int = 0
    replayed: int = 0
    # provider
    model_calls: int = 0
    calls_without_usage: int = 0
    provider_failures: int = 0
    rate_limits: int = 0
    quota_waits: int = 0
    unpriced: int = 0
    pools: int = 0  # quota pools that the calls drew on
    pools_unlimited: int = 0  # of them, with no limit that anybody set or that the provider told
    pools_not_closed: int = 0  # of them, whose circuit is open or half open
    pooled_calls: int = 0  # that went through a pool
    queued_now: int = 0  # tasks that wait in a pool's queue
    circuits_opened: int = 0
    fallbacks: int = 0
    budgets: int = 0  # in force above the tasks
    tasks_with_budget: int = 0
    budget_waits: int = 0
    # tool calls
    tool_calls: int = 0
    results_without_hash: int = 0
    corrected: int = 0
    held: int = 0
    approvals_used: int = 0
    hollow: int = 0  # results named empty, ambiguous or truncated
    network_refusals: int = 0
    # context
    steps_with_manifest: int = 0
    rebuilt: int = 0
    rebuilt_equal: int = 0
    not_rebuilt: str = ""
    compactions: int = 0
    models: int = 0  # that were looked at
    calibrated_models: int = 0  # with enough of their provider's counts to learn from
    learned_windows: int = 0  # providers that were found to hold less than the profile says
    # people and notes
    questions: int = 0
    questions_expired: int = 0
    note_versions: int = 0
    exit_conditions: int = 0
    forks: int = 0
    nudges: int = 0
    nudges_helped: int = 0
    open_networks: int = 0
    incidents: dict[str, int] = field(default_factory=dict)  # by kind
    tools: ToolsFacts = field(default_factory=ToolsFacts)
