"""Whether this site can send e-mail. Asks no server."""

from __future__ import annotations

from django.conf import settings

from workspaces.domain.mail import sender_problem


def why_no_mail() -> str:
    """What is to be done before e-mail can be sent, or an empty string."""
    if not settings.EMAIL_HOST:
        return "E-mail is not set up on this site: set AGENTDESK_EMAIL_HOST and AGENTDESK_EMAIL_FROM, then restart it."
    if problem := sender_problem(settings.EMAIL_FROM):
        return f"E-mail is not set up on this site: AGENTDESK_EMAIL_FROM names no sender ({problem})."
    return ""
