"""The form of a new task: what was typed, read and checked as far as it can be before the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet

from workspaces.domain.retuning import problems_with
from workspaces.domain.roles import Role
from workspaces.domain.text import clean_text
from workspaces.models import AgentProfile, Membership, ProfileVersion, User, Workspace
from workspaces.queries.access import usable_profiles, visible_workspaces
from workspaces.queries.database import database_now
from workspaces.queries.intake import archive_problem, git_problem

from .limits_form import deadline_field, tokens_field, usd_field
from .uploads import StoredUpload, described

OWN_LIMITS = ("max_steps", "deadline", "interactive", "budget_usd", "budget_tokens")


class TaskForm(forms.Form):
    workspace = forms.ModelChoiceField(
        Workspace.objects.none(), error_messages={"required": "Choose where the agent works."}
    )
    profile = forms.ModelChoiceField(
        ProfileVersion.objects.none(), error_messages={"required": "Choose which agent does it."}
    )
    instruction = forms.CharField(strip=True, error_messages={"required": "Write what the agent is to do."})
    title = forms.CharField(required=False, max_length=120)
    git_url = forms.CharField(required=False, max_length=2000)
    hold = forms.BooleanField(required=False)
    max_steps = forms.IntegerField(required=False)
    deadline = deadline_field()
    interactive = forms.BooleanField(required=False)
    budget_usd = usd_field()
    budget_tokens = tokens_field()

    def __init__(self, user: User, data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial=initial)
        self.fields["workspace"].queryset = operated_workspaces(user)  # type: ignore[attr-defined]
        self.fields["profile"].queryset = newest_versions(user)  # type: ignore[attr-defined]

    def clean_instruction(self) -> str:
        return clean_text(self.cleaned_data["instruction"])

    def clean_git_url(self) -> str:
        url = self.cleaned_data["git_url"].strip()
        problem = git_problem(url) if url else ""
        if problem:
            raise forms.ValidationError(problem)
        return url

    def clean(self) -> dict[str, Any]:
        """`limits`: what is said for this task alone, by the names of domain/retuning.py."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        said = {name: data.get(name) for name in OWN_LIMITS}
        self.limits = {name: value for name, value in said.items() if value is not None and value is not False}
        window = data["profile"].context_window_tokens if data.get("profile") else 0
        for name, words in problems_with(self.limits, window_tokens=window, now=database_now()).items():
            self.add_error(name, words)
        return data

    def take_uploads(self, files: Sequence[StoredUpload], archive: StoredUpload | None, refused: Sequence[str]) -> None:
        """Refuse what is too large or is no archive. Call after `is_valid`."""
        for why in dict.fromkeys(refused):
            self.add_error(None, f"Not taken: {why}. Leave it out, or have the agent fetch it.")
        problem = archive_problem(archive.path, archive.name or "") if archive else ""
        if problem:
            self.add_error(None, problem)
        self.intake: dict[str, Any] = {}
        if files:
            self.intake["files"] = [described(upload) for upload in files]
        if archive:
            self.intake["archive"] = described(archive)
        if self.cleaned_data.get("git_url"):
            self.intake["git_url"] = self.cleaned_data["git_url"]


def operated_workspaces(user: User) -> QuerySet[Workspace]:
    """Those in which the user may start a task."""
    visible = visible_workspaces(user).select_related("owner").order_by("name")
    if user.is_staff:
        return visible
    mine = Membership.objects.filter(user=user).exclude(role=Role.VIEWER.value)
    return visible.filter(pk__in=mine.values("workspace"))


def newest_versions(user: User) -> QuerySet[ProfileVersion]:
    """Every version of the usable profiles, the newest of each first. Older ones are for repeating a task."""
    usable: QuerySet[AgentProfile] = usable_profiles(user)
    return (
        ProfileVersion.objects.filter(profile__in=usable)
        .select_related("profile__workspace")
        .order_by("profile__name", "profile", "-number")
    )
