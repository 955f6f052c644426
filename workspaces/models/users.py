"""A person who signs in. Site staff (`is_staff`) see everything."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser


class User(AbstractUser):
    """Django's user under our own name, so that it can grow without a change of AUTH_USER_MODEL."""
