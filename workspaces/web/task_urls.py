"""Addresses below `tasks/<task_id>/`."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
