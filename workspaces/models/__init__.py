"""Layer 2, models: tables, constraints and managers. No rules of behaviour."""

from __future__ import annotations

from .decisions import Approval, AuditEntry, Escalation, StandingApproval
from .incidents import Incident
from .nodes import Leftover, Node
from .profiles import AgentProfile, ProfileVersion, ProviderKey
from .scratchpad import ScratchpadEdit
from .signin import SignInCounter
from .tasks import Branch, Checkpoint, Latch, Step, Task
from .terminal import OperatorCommand
from .trace import Event, LedgerEntry, Message, ModelCall, ToolCall, UsageRecord
from .users import User
from .windows import LearnedWindow
from .workspaces import Membership, Snapshot, Workspace

__all__ = [
    "AgentProfile",
    "Approval",
    "AuditEntry",
    "Branch",
    "Checkpoint",
    "Escalation",
    "Event",
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
    "ProfileVersion",
    "ProviderKey",
    "ScratchpadEdit",
    "SignInCounter",
    "Snapshot",
    "StandingApproval",
    "Step",
    "Task",
    "ToolCall",
    "UsageRecord",
    "User",
    "Workspace",
]
