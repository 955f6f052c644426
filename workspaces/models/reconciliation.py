"""A provider's own account of what was used, as it was brought here, and its rows. Nothing of a file is thrown away."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from .fields import usd
from .profiles import ProfileVersion


class UsageImport(models.Model):
    """One export. `text` is the file itself; `columns` {} until somebody said which column is what.

    Written by actions/reconciliation.py only. Readers: queries/reconciliation.py.
    """

    provider = models.CharField(
        max_length=16, choices=ProfileVersion.Provider.choices, blank=True, default=""
    )  # whose calls it is compared with; "": those of the models that it names
    form = models.CharField(max_length=32)  # domain/provider_exports.FORMS, or MAPPED
    file_name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64, unique=True)
    size_bytes = models.PositiveIntegerField()
    text = models.TextField()
    columns = models.JSONField(default=dict, blank=True)
    rows_read = models.PositiveIntegerField(default=0)
    rows_bad = models.PositiveIntegerField(default=0)
    rows_empty = models.PositiveIntegerField(default=0)
    first_day = models.DateField(null=True)
    last_day = models.DateField(null=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.file_name} ({self.form})"


class UsageImportRow(models.Model):
    """A line of it that was read, or that could not be (`problem`)."""

    source = models.ForeignKey(UsageImport, models.CASCADE, related_name="rows")
    line = models.PositiveIntegerField()
    day = models.DateField(null=True)
    model = models.CharField(max_length=200, blank=True, default="")
    input_tokens = models.BigIntegerField(null=True)  # neither cached nor written to a cache
    cached_input_tokens = models.BigIntegerField(null=True)
    cache_write_tokens = models.BigIntegerField(null=True)
    output_tokens = models.BigIntegerField(null=True)
    cost_usd = usd(null=True)
    problem = models.TextField(blank=True, default="")
    raw = models.TextField(blank=True, default="")  # the beginning of a line that could not be read

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "line"], name="usage_import_line_once")]

    def __str__(self) -> str:
        return f"line {self.line} of import {self.source_id}"
