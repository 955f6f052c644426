"""What MCP servers have said of their tools, and which of it a person has accepted. Definitions are never changed."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from .profiles import AgentProfile


class ToolServer(models.Model):
    """A server of a profile, known by its name and its place (domain/mcp.McpServer.place): what was last seen there."""

    profile = models.ForeignKey(AgentProfile, models.CASCADE, related_name="tool_servers")
    name = models.CharField(max_length=24)
    place = models.CharField(max_length=64)
    transport = models.CharField(max_length=8)
    address = models.TextField()  # its URL, or its command, for people
    looked_at = models.DateTimeField(null=True)  # when its tools were last listed; null: never yet
    problem = models.TextField(blank=True, default="")  # why they could not be, the last time
    unusable = models.JSONField(default=list, blank=True)  # [{tool, problem}] of the newest list

    class Meta:
        constraints = [models.UniqueConstraint(fields=["profile", "name", "place"], name="tool_server_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.profile_id}"


class ToolDefinition(models.Model):
    """One definition of one tool, as its server gave it. Only `state`, `offered` and who decided ever change."""

    class State(models.TextChoices):
        QUARANTINED = "quarantined", "waits for a person"
        ACCEPTED = "accepted"
        REFUSED = "refused"
        REPLACED = "replaced", "accepted earlier"

    WAITING = (State.QUARANTINED, State.REPLACED)  # offered in one of these, it waits for a person

    server = models.ForeignKey(ToolServer, models.CASCADE, related_name="definitions")
    tool = models.CharField(max_length=200)  # as the server names it
    name = models.CharField(max_length=64)  # as the model does
    definition = models.JSONField()
    fingerprint = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUARANTINED)
    offered = models.BooleanField(default=True)  # in the newest list
    first_seen_at = models.DateTimeField()
    seen_at = models.DateTimeField()  # when it was last found to be offered anew
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["server", "tool", "fingerprint"], name="tool_definition_once"),
            models.UniqueConstraint(
                fields=["server", "tool"], condition=Q(state="accepted"), name="tool_definition_one_accepted"
            ),
            models.UniqueConstraint(
                fields=["server", "tool"], condition=Q(offered=True), name="tool_definition_one_offered"
            ),
            models.CheckConstraint(
                condition=Q(state="quarantined", decided_at=None, decided_by=None)
                | (~Q(state="quarantined") & Q(decided_at__isnull=False, decided_by__isnull=False)),
                name="tool_definition_decided",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.state})"
