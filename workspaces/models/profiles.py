"""Who an agent is: a named profile whose versions never change, and the encrypted key of its provider."""

from __future__ import annotations

import json
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.crypto import salted_hmac

from workspaces.domain.retention import EVERY, LAST
from workspaces.domain.tool_secrets import KEPT as KEPT
from workspaces.domain.tool_secrets import put_back

from .fields import usd
from .workspaces import Workspace


class AgentProfile(models.Model):
    """Belongs to one workspace, or (workspace is null) to the whole site."""

    name = models.CharField(max_length=80)
    workspace = models.ForeignKey(Workspace, models.CASCADE, null=True, blank=True, related_name="profiles")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"], name="profile_name_once_a_workspace", nulls_distinct=False
            )
        ]

    def __str__(self) -> str:
        return self.name


class ProviderKey(models.Model):
    """A provider's secret, encrypted at rest. Only the engine opens it; no page ever shows it again."""

    sealed = models.BinaryField()
    hint = models.CharField(max_length=8)  # the last four characters, to tell keys apart
    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")  # equal for equal secrets
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"key …{self.hint}" if self.hint else "a short key"

    @staticmethod
    def sealed_fields(secret: str) -> dict[str, Any]:
        """The columns that hold `secret`. The hint is left out for keys so short that it would tell much."""
        return {
            "sealed": seal(secret),
            "hint": secret[-4:] if len(secret) >= 16 else "",
        }

    @staticmethod
    def fingerprint_of(secret: str) -> str:
        """Equal for equal secrets of one site, and tells nothing else of them."""
        return salted_hmac("workspaces.provider_key", secret, algorithm="sha256").hexdigest()

    def open(self) -> str:
        """The secret itself. Raises cryptography.fernet.InvalidToken when FIELD_ENCRYPTION_KEYS changed."""
        return open_sealed(self.sealed)


def seal(secret: str) -> bytes:
    """A secret as it may lie in a column."""
    return _fernet().encrypt(secret.encode())


def open_sealed(sealed: bytes | memoryview) -> str:
    """Raises cryptography.fernet.InvalidToken when FIELD_ENCRYPTION_KEYS changed."""
    return _fernet().decrypt(bytes(sealed)).decode()


def _fernet() -> MultiFernet:
    """The first key seals; all of them open, so that keys can be rotated."""
    return MultiFernet([Fernet(key) for key in settings.FIELD_ENCRYPTION_KEYS])


class ProfileVersion(models.Model):
    """One immutable edition of a profile (a trigger refuses updates). A task names one."""

    tuned = False  # a copy for one task's requests, see queries/tuning.py; such a one is never saved

    class Provider(models.TextChoices):
        OPENAI = "openai", "OpenAI-compatible (Chat Completions)"
        ANTHROPIC = "anthropic", "Anthropic Messages"
        SCRIPTED = "scripted", "Scripted scenario"

    profile = models.ForeignKey(AgentProfile, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    provider = models.CharField(max_length=16, choices=Provider.choices)
    base_url = models.CharField(max_length=500, blank=True, default="")
    key = models.ForeignKey(ProviderKey, models.PROTECT, null=True, blank=True, related_name="+")
    model = models.CharField(max_length=200)
    system_prompt = models.TextField(blank=True, default="")
    tools = models.JSONField(default=list)  # names of built-in tools
    declared_tools = models.JSONField(default=list)  # see tools/declared.py
    provider_options = models.JSONField(default=dict)  # the values of its `headers` are KEPT apart
    headers = models.ForeignKey(ProviderKey, models.PROTECT, null=True, blank=True, related_name="+")  # sealed JSON
    tool_secrets = models.ForeignKey(ProviderKey, models.PROTECT, null=True, blank=True, related_name="+")  # likewise
    temperature = models.FloatField(null=True, blank=True)
    max_output_tokens = models.PositiveIntegerField(default=4096)
    context_window_tokens = models.PositiveIntegerField(default=128_000)
    max_steps = models.PositiveIntegerField(default=100)
    model_timeout_s = models.PositiveIntegerField(default=120)
    keep_last = models.PositiveIntegerField(default=LAST)  # checkpoints that stay restorable: domain/retention.py
    keep_every = models.PositiveIntegerField(default=EVERY)
    approval_expires_s = models.PositiveIntegerField(default=24 * 3600)
    policy = models.JSONField(default=list, blank=True, db_default=[])  # the gate's rules: domain/policy.py
    detectors = models.JSONField(default=dict, blank=True, db_default={})  # thresholds that differ from the defaults
    context_policy = models.JSONField(default=dict, blank=True, db_default={})  # when and how to compact
    http = models.JSONField(default=dict, blank=True, db_default={})  # where http_request may go
    mcp_servers = models.JSONField(default=list, blank=True, db_default=[])
    fallback = models.JSONField(default=dict, blank=True, db_default={})  # who answers when its pool does not
    input_usd_per_mtok = usd(null=True, blank=True)  # overrides the price list
    output_usd_per_mtok = usd(null=True, blank=True)
    local_allowed = models.BooleanField(default=False)  # may run without isolation
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["profile", "number"], name="profile_version_once")]

    def __str__(self) -> str:
        return f"{self.profile.name} v{self.number}"

    @property
    def account(self) -> str:
        """Whose allowance its calls use at its address: that of its key, however often the same key was typed."""
        if self.provider == ProfileVersion.Provider.SCRIPTED:
            return f"profile:{self.profile_id}"
        if self.key is not None:
            return self.key.fingerprint or f"key:{self.key_id}"
        if self.headers is None:
            return ""
        try:  # a key may be in a header
            return ProviderKey.fingerprint_of(self.headers.open())
        except InvalidToken:
            return f"key:{self.headers_id}"

    @property
    def allowance(self) -> dict[str, str]:
        """What all quota pools of its calls have in common."""
        return {"provider": self.provider, "base_url": self.base_url.rstrip("/"), "account": self.account}

    def opened_headers(self) -> dict[str, str]:
        """The extra request headers with their values. Raises InvalidToken as ProviderKey.open does."""
        return json.loads(self.headers.open()) if self.headers else {}

    def opened_options(self) -> dict[str, Any]:
        """What the provider needs. Never for a page: use `provider_options` there."""
        return {**self.provider_options, **({"headers": self.opened_headers()} if self.headers else {})}

    def opened_tool_secrets(self) -> dict[str, str]:
        """By the names of domain/tool_secrets.py. Raises InvalidToken as ProviderKey.open does."""
        return json.loads(self.tool_secrets.open()) if self.tool_secrets else {}

    def opened_tools(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """`http` and `mcp_servers` with their secrets, for what runs them. Never for a page."""
        return put_back(self.http, self.mcp_servers, self.opened_tool_secrets())
