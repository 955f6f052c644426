"""A process says that it lives. In Postgres and not in Valkey: whoever tells people that nothing works needs Postgres
anyway, a Valkey that is away would look like the end of every worker, and a key that expires forgets who fell silent.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import connection
from django.db.models.functions import Now

from workspaces.domain.states import ProcessRole
from workspaces.models import Heartbeat

KEPT_S = 86_400

_BEAT = """
INSERT INTO workspaces_heartbeat AS known (key, role, host, pid, started_at, seen_at, ending_at)
VALUES (%(key)s, %(role)s, %(host)s, %(pid)s, statement_timestamp(), statement_timestamp(),
        CASE WHEN %(ending)s::boolean THEN statement_timestamp() END)
ON CONFLICT (key) DO UPDATE
   SET seen_at = EXCLUDED.seen_at, ending_at = coalesce(known.ending_at, EXCLUDED.ending_at)
"""


def beat(key: str, role: ProcessRole, *, host: str, pid: int, ending: bool = False) -> None:
    """One statement. `key`: of this life of the process. `ending`: it was told to end."""
    with connection.cursor() as cursor:
        cursor.execute(_BEAT, {"key": key[:160], "role": role.value, "host": host[:120], "pid": pid, "ending": ending})


def forget_old() -> int:
    """Processes that were not seen for a day; how many."""
    return Heartbeat.objects.filter(seen_at__lt=Now() - timedelta(seconds=KEPT_S)).delete()[0]
