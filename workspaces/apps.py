"""The app's entry in Django: loads the Celery application and the configuration checks. No product logic."""

from __future__ import annotations

from django.apps import AppConfig


class WorkspacesConfig(AppConfig):
    name = "workspaces"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import agentdesk.celery  # noqa: F401  every process must send jobs to our broker
        from workspaces import checks  # noqa: F401  registers itself
