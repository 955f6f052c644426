"""Who is behind a socket now: its session is read again, so that a sign-out or a deactivation ends it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user
from django.http import HttpRequest

from workspaces.models import User


def user_of_session(scope: dict[str, Any]) -> User | None:
    """Queries. None when nobody is signed in there any more."""
    session = scope.get("session")
    if session is None or not session.session_key:
        return None
    request = HttpRequest()
    request.session = session.__class__(session.session_key)  # type() would give the lazy wrapper
    user = get_user(request)
    return user if isinstance(user, User) and user.is_active else None
