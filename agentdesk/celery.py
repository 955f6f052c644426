"""The Celery application: jobs are wake-up calls that carry ids. The broker keeps nothing that matters."""

from __future__ import annotations

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")

app = Celery("agentdesk")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workspaces"], related_name="jobs")


@setup_logging.connect
def _log_like_django(**_: Any) -> None:
    """Without a receiver Celery would set up a format of its own, which scrubs nothing."""
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
