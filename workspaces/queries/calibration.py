"""What is known of a model's counting and of its provider's real window. Bounded: the newest calls, few rows."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from workspaces.domain.tokens import SAMPLES, UNKNOWN, Calibration, calibrate, endpoint_of
from workspaces.domain.truncation import LOOKED_AT, SentCall
from workspaces.models import Branch, ProfileVersion

COUNTED = "m.input_tokens + coalesce(m.cached_input_tokens, 0) + coalesce(m.cache_write_tokens, 0)"

# In SQL, because every step asks. The endpoint is given as a range, so that its own index is what is read: taken for a
# constant, the planner may go back through the newest calls of every other model to find those of this one.
_LIMITS = f"""
SELECT * FROM (
    SELECT m.estimated_tokens, {COUNTED}, NULL::integer
      FROM workspaces_modelcall m
     WHERE m.endpoint >= %s AND m.endpoint <= %s AND m.status = 'replied' AND m.estimated_tokens IS NOT NULL
       AND NOT m.prompt_truncated AND m.input_tokens IS NOT NULL
     ORDER BY m.endpoint, m.id DESC LIMIT {SAMPLES}) AS counted
UNION ALL
SELECT NULL, NULL, min(w.tokens)
  FROM workspaces_learnedwindow w JOIN workspaces_incident i ON i.id = w.incident_id
 WHERE w.profile_version_id = %s AND w.model = %s AND i.state <> 'resolved'
"""  # noqa: S608 - constants

_NEWEST = f"""
SELECT s.number, m.id, m.estimated_tokens, {COUNTED}
  FROM (SELECT id, number FROM workspaces_step WHERE branch_id = %s ORDER BY number DESC LIMIT {LOOKED_AT + 1}) AS s
  JOIN workspaces_modelcall m ON m.step_id = s.id
 WHERE m.purpose = 'step' AND m.status = 'replied' AND m.model = %s
   AND m.input_tokens IS NOT NULL AND m.estimated_tokens IS NOT NULL
 ORDER BY s.number DESC LIMIT {LOOKED_AT}
"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request has to keep to. A step's manifest stores it, so that the request stays what it was."""

    window_tokens: int  # of the profile
    calibration: Calibration = UNKNOWN
    learned_tokens: int | None = None  # the provider holds less than the profile says

    @classmethod
    def of(cls, version: ProfileVersion, model: str = "") -> Limits:
        """As they are now: from the newest calls of the model at its endpoint, in any task, but for those whose prompt
        was cut, and the smallest window that an incident has shown and nobody has resolved. One query.
        """
        counted_as = endpoint(version, model)
        with connection.cursor() as cursor:
            cursor.execute(_LIMITS, [counted_as, counted_as, version.pk, model or version.model])
            rows = cursor.fetchall()
        pairs = [(sent, counted) for sent, counted, _ in rows if sent is not None]
        learned = next((tokens for _, _, tokens in rows if tokens is not None), None)
        return cls(version.context_window_tokens, calibrate(pairs), learned)


def calibration_of(version: ProfileVersion, model: str = "") -> Calibration:
    return Limits.of(version, model).calibration


def endpoint(version: ProfileVersion, model: str = "") -> str:
    return endpoint_of(version.provider, version.base_url, version.pk, model or version.model)


def newest_counts(branch: Branch, model: str) -> list[SentCall]:
    """The newest replies on a branch that were counted, oldest first, without their seqs."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [branch.pk, model])
        rows = cursor.fetchall()
    return [SentCall(0, *row) for row in reversed(rows)]
