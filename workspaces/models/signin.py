"""Counters of tries to sign in, shared by every web process."""

from __future__ import annotations

from django.db import models


class SignInCounter(models.Model):
    """`key`: the hash of what is counted (domain/throttle.py), so that no mistyped name or password lies here."""

    key = models.CharField(max_length=64, primary_key=True)
    tries = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(db_index=True)
    until = models.DateTimeField()  # no try is taken before

    def __str__(self) -> str:
        return f"{self.tries} tries"
