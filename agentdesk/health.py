"""`/healthz`: the process answers. `/readyz`: it can do its work. Says which part is missing, and no more."""

from __future__ import annotations

import logging
import time
from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

logger = logging.getLogger(__name__)

HEARTBEAT_FRESH_S = 30
OK = "ok"


@never_cache
@require_safe
def alive(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """200 when pages and jobs can work, else 503. A missing scheduler is told, but pages work without it."""
    parts = {"database": _database(), "valkey": _valkey()}
    parts["migrations"] = _migrations() if parts["database"] == OK else "unknown"
    works = all(state == OK for state in parts.values())
    parts["scheduler"] = _scheduler() if parts["valkey"] == OK else "unknown"
    return JsonResponse(parts, status=200 if works else 503)


def beat() -> None:
    """Called by the scheduler on every round: says that it lives."""
    _client().set(_heartbeat_key(), f"{time.time():.3f}", ex=HEARTBEAT_FRESH_S)


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
    try:
        _client().ping()
    except redis.RedisError as error:
        logger.warning("valkey: %s", error)
        return "does not answer"
    return OK


def _scheduler() -> str:
    try:
        return OK if _client().exists(_heartbeat_key()) else "no heartbeat"
    except redis.RedisError:
        return "unknown"


def _heartbeat_key() -> str:
    return f"{settings.VALKEY_PREFIX}.scheduler"


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.VALKEY_URL, socket_connect_timeout=3, socket_timeout=3)
