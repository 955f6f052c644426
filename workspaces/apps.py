"""The app's entry in Django: loads the Celery application and the configuration checks. No product logic."""

from __future__ import annotations

import logging
from typing import Any

from django.apps import AppConfig
from django.db import ProgrammingError, transaction
from django.db.models.signals import post_migrate

logger = logging.getLogger(__name__)


class WorkspacesConfig(AppConfig):
    name = "workspaces"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import agentdesk.celery  # noqa: F401  every process must send jobs to our broker
        from workspaces import checks  # noqa: F401  registers itself

        post_migrate.connect(_install_rules, sender=self, dispatch_uid="alert-rules")


def _install_rules(**_: Any) -> None:
    """The rules that come with agentdesk are there as soon as their table is."""
    from workspaces.actions.alert_rules import install_defaults

    try:
        with transaction.atomic():
            install_defaults()
    except ProgrammingError as error:  # migrated to before the table, or between two of its changes
        logger.info("the default alert rules were not put in: %s", error)
