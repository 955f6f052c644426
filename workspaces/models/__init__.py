"""Layer 2, models: tables, constraints and managers. No rules of behaviour."""

from __future__ import annotations

from .alerts import Alert, AlertChange, AlertMember, AlertRule, AlertSignal
from .budgets import Budget, BudgetAccount, BudgetHold, BudgetWait
from .contexts import ContextFrame, Replacement, Summary
from .decisions import Approval, AuditEntry, Escalation, StandingApproval
from .endpoints import ActionLink, Delivery, DeliveryAttempt, Endpoint, EndpointSecret
from .heartbeats import AlertWatch, Heartbeat
from .incidents import Incident
from .nodes import Leftover, Node
from .profiles import AgentProfile, ProfileVersion, ProviderKey
from .quotas import QuotaClaim, QuotaMinute, QuotaNotice, QuotaPool, QuotaShare
from .reconciliation import UsageImport, UsageImportRow
from .scratchpad import ScratchpadEdit
from .signin import SignInCounter
from .tasks import Branch, Checkpoint, Latch, Step, Task
from .terminal import OperatorCommand
from .tool_servers import ToolDefinition, ToolServer
from .trace import Event, LedgerEntry, Message, ModelCall, ToolCall
from .usage import Price, SandboxMeter, StorageMeter, UsageDay, UsageRecord, UsageRollup
from .users import User
from .windows import LearnedWindow
from .workspaces import Membership, Snapshot, Workspace

__all__ = [
    "ActionLink",
    "AgentProfile",
    "Alert",
    "AlertChange",
    "AlertMember",
    "AlertRule",
    "AlertSignal",
    "AlertWatch",
    "Approval",
    "AuditEntry",
    "Branch",
    "Budget",
    "BudgetAccount",
    "BudgetHold",
    "BudgetWait",
    "Checkpoint",
    "ContextFrame",
    "Delivery",
    "DeliveryAttempt",
    "Endpoint",
    "EndpointSecret",
    "Escalation",
    "Event",
    "Heartbeat",
    "Incident",
    "Latch",
    "LearnedWindow",
    "LedgerEntry",
    "Leftover",
    "Membership",
    "Message",
    "ModelCall",
    "Node",
    "OperatorCommand",
    "Price",
    "ProfileVersion",
    "ProviderKey",
    "QuotaClaim",
    "QuotaMinute",
    "QuotaNotice",
    "QuotaPool",
    "QuotaShare",
    "Replacement",
    "SandboxMeter",
    "ScratchpadEdit",
    "SignInCounter",
    "Snapshot",
    "StandingApproval",
    "Step",
    "StorageMeter",
    "Summary",
    "Task",
    "ToolCall",
    "ToolDefinition",
    "ToolServer",
    "UsageDay",
    "UsageImport",
    "UsageImportRow",
    "UsageRecord",
    "UsageRollup",
    "User",
    "Workspace",
]
