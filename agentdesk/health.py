"""`/healthz`: the process answers. `/readyz`: it can do its work. Says which part is missing, and no more."""

from __future__ import annotations

import logging
from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from workspaces.queries.heartbeats import pulse

logger = logging.getLogger(__name__)

OK = "ok"
SILENT = "no heartbeat"


@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """200 when pages can work, else 503. Missing workers or a missing scheduler are told, but pages work without."""
    parts = {"database": _database(), "valkey": _valkey()}
    parts["migrations"] = _migrations() if parts["database"] == OK else "unknown"
    works = all(state == OK for state in parts.values())
    migrated = parts["migrations"] == OK
    parts["workers"], parts["scheduler"] = _processes() if migrated else ("unknown", "unknown")
    return JsonResponse(parts, status=200 if works else 503)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("database: %s", error)
        return "does not answer"
    return OK


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        logger.warning("migrations: %s", error)
        return "unknown"
    return f"{len(missing)} not applied" if missing else OK


def _valkey() -> str:
    return OK if broker_answers() else "does not answer"


def broker_answers() -> bool:
    """Within three seconds."""
    try:
        _client().ping()
    except redis.RedisError as error:
        logger.warning("valkey: %s", error)
        return False
    return True


def _processes() -> tuple[str, str]:
    try:
        found = pulse()
    except DatabaseError as error:
        logger.warning("heartbeats: %s", error)
        return "unknown", "unknown"
    return OK if found.workers else SILENT, OK if found.schedulers else SILENT


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.VALKEY_URL, socket_connect_timeout=3, socket_timeout=3)
