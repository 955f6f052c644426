"""Site staff's window on the records: every table, read-only. Changes go through the desk, which leaves a trace."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Model
from django.http import HttpRequest

from workspaces import models

LISTED: dict[type[Model], tuple[str, ...]] = {
    models.AgentProfile: ("name", "workspace", "created_by", "created_at", "retired_at"),
    models.AlertWatch: ("kind", "looked_at", "since", "failing_since", "error"),
    models.Approval: ("tool_call", "given_by", "given_at", "expires_at", "used_at"),
    models.AuditEntry: ("at", "actor", "action", "workspace", "task", "reason"),
    models.Branch: ("task", "number", "parent", "parent_seq", "reason"),
    models.Budget: ("id", "scope", "period", "limit_usd", "limit_tokens", "created_by", "created_at", "ended_at"),
    models.BudgetAccount: ("budget", "period_key", "spent_usd", "reserved_usd", "assumed_usd", "exhausted_at"),
    models.BudgetHold: ("workspace", "purpose", "usd", "held_in", "since"),
    models.BudgetWait: ("task", "expected_usd", "expected_tokens", "accounts", "short", "since"),
    models.Checkpoint: ("task", "seq", "branch", "step_number", "created_at"),
    models.ContextFrame: ("hash", "made_at"),
    models.Escalation: ("task", "kind", "status", "decision", "answered_by", "opened_at", "deadline"),
    models.Event: ("task", "seq", "kind", "branch_number", "step_number", "actor", "at"),
    models.Latch: ("scope", "mode", "reason", "placed_by", "placed_at", "released_at"),
    models.Heartbeat: ("role", "host", "pid", "started_at", "seen_at", "ending_at"),
    models.LearnedWindow: ("profile_version", "model", "tokens", "incident", "seq", "learned_at"),
    models.LedgerEntry: ("tool_call", "state", "created_at", "completed_at"),
    models.Leftover: ("node", "workspace", "sandbox_key", "left_at", "removed_at"),
    models.Membership: ("workspace", "user", "role", "created_at"),
    models.Message: ("task", "seq", "part", "role", "tokens"),
    models.ModelCall: ("task", "step", "attempt", "status", "model", "cost_usd", "started_at"),
    models.Node: ("name", "address", "memory_bytes", "cpus", "version", "looked_at", "failing_since", "error"),
    models.OperatorCommand: ("workspace", "task", "actor", "status", "exit_code", "ordered_at", "finished_at"),
    models.Price: ("subject", "unit", "usd", "valid_from", "created_by", "reason"),
    models.ProfileVersion: ("profile", "number", "provider", "model", "created_by", "created_at"),
    models.QuotaClaim: ("pool", "task", "user", "state", "queued_at", "granted_at", "expires_at"),
    models.QuotaMinute: ("pool", "minute", "calls", "input_tokens", "output_tokens", "refusals", "retries"),
    models.QuotaNotice: ("pool", "kind", "at", "words", "task", "actor"),
    models.QuotaPool: ("name", "provider", "group", "by_hand", "circuit", "blocked_until", "created_at"),
    models.QuotaShare: ("pool", "user", "weight", "finish", "open", "used_at"),
    models.Replacement: ("task", "branch", "seq", "message", "how", "tokens", "path"),
    models.SandboxMeter: ("workspace", "machine", "cpu_s", "age_s", "memory_bytes", "at"),
    models.ScratchpadEdit: ("task", "seq", "section", "by", "actor", "written_at"),
    models.Snapshot: ("workspace", "ref", "added_bytes", "total_bytes", "files", "created_at"),
    models.StandingApproval: ("task", "name", "given_by", "given_at", "revoked_by", "revoked_at"),
    models.StorageMeter: ("workspace", "disk_bytes", "snapshot_bytes", "at"),
    models.Step: ("task", "branch", "number", "phase", "started_at", "settled_at"),
    models.Summary: ("task", "branch", "seq", "messages", "tokens_before", "tokens_after", "model_call"),
    models.Task: ("id", "title", "status", "waiting_for", "workspace", "created_by", "cost_usd", "created_at"),
    models.ToolCall: ("task", "name", "effect", "verdict", "status", "result_class", "started_at"),
    models.UsageRecord: ("task", "user", "purpose", "unit", "quantity", "cost_usd", "created_at"),
    models.UsageDay: ("day", "task", "user", "model", "purpose", "records", "cost_usd", "unpriced"),
    models.UsageRollup: ("hour", "task", "user", "model", "purpose", "unit", "quantity", "cost_usd", "unpriced"),
    models.Workspace: ("name", "owner", "driver", "node", "network", "runtime", "held_by", "created_at"),
}


class ReadOnly(admin.ModelAdmin):
    """Seen by staff, changed by nobody."""

    show_full_result_count = False  # counting ten million events takes longer than the page
    list_per_page = 50

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(models.ProviderKey)
class ProviderKeyAdmin(ReadOnly):
    """Which keys there are; never the sealed secret."""

    list_display = ("__str__", "created_by", "created_at")
    fields = ("hint", "created_by", "created_at")


for _model, _columns in LISTED.items():
    admin.site.register(
        _model,
        type(
            f"{_model.__name__}Admin",
            (ReadOnly,),
            {
                "__doc__": "Read-only.",
                "__module__": __name__,
                "list_display": _columns,
                "list_select_related": True,
                "ordering": ("-pk",),
            },
        ),
    )

admin.site.register(models.User, UserAdmin)  # people are made and changed here, by superusers
admin.site.site_header = "agentdesk records"
admin.site.site_title = "agentdesk"
admin.site.index_title = "Read-only, except for users"
