"""What a provider's window really holds, where it turned out to be less than the profile says."""

from __future__ import annotations

from django.db import models

from .incidents import Incident
from .profiles import ProfileVersion


class LearnedWindow(models.Model):
    """Holds while its incident is not resolved. Readers: the request's builder, the context panel, the auditor."""

    profile_version = models.ForeignKey(ProfileVersion, models.CASCADE, related_name="learned_windows")
    model = models.CharField(max_length=200)
    tokens = models.PositiveIntegerField()
    incident = models.ForeignKey(Incident, models.CASCADE, related_name="learned_windows")
    seq = models.BigIntegerField()  # of the reply that showed it, in the incident's task
    learned_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["incident", "tokens"], name="learned_window_once")]
        indexes = [models.Index(fields=["profile_version", "model"], name="learned_window_of")]

    def __str__(self) -> str:
        return f"{self.model} holds {self.tokens} tokens"
