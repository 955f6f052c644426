"""The forms of budgets: what they are for, how much, and when to say so. Who may is asked by the action."""

from __future__ import annotations

from typing import Any

from django import forms

from workspaces.domain.roles import Role
from workspaces.domain.states import BudgetPeriod, BudgetScope
from workspaces.models import AgentProfile, Membership, User, Workspace
from workspaces.queries.access import usable_profiles, visible_tasks, visible_workspaces

from .limits_form import tokens_field, usd_field

OFFERED = 500
REASON = {"required": "Say why: the reason is kept in the audit log."}
PERIODS = (
    (BudgetPeriod.DAY.value, "a day (UTC)"),
    (BudgetPeriod.MONTH.value, "a month (UTC)"),
    (BudgetPeriod.TOTAL.value, "in total, from now on"),
    (BudgetPeriod.TASK.value, "for each task by itself"),
)


class PercentsField(forms.CharField):
    """ "50, 80, 95" """

    def clean(self, value: Any) -> list[int]:
        text = super().clean(value) or ""
        parts = [part.strip().removesuffix("%").strip() for part in text.split(",")]
        if any(part and not (part.isascii() and part.isdigit() and len(part) < 4) for part in parts):
            raise forms.ValidationError("Write percentages with commas between them: 50, 80, 95.")
        return [int(part) for part in parts if part]

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(str(each) for each in value) if isinstance(value, list) else value


class AmountsForm(forms.Form):
    """What every budget says: its limits, its thresholds, and why."""

    limit_usd = usd_field()
    limit_tokens = tokens_field()
    alerts = PercentsField(required=False, max_length=60)
    reason = forms.CharField(max_length=500, error_messages=REASON)

    @property
    def limits(self) -> dict[str, Any]:
        """`limit_usd` (Decimal or None) and `limit_tokens` (int or None), as the actions take them."""
        return {name: self.cleaned_data[name] for name in ("limit_usd", "limit_tokens")}


class NewBudgetForm(AmountsForm):
    """`of`: "site", "user:3", "workspace:5", "profile:2" or "task", whose number is in `task`."""

    of = forms.CharField(max_length=40, error_messages={"required": "Choose what it limits."})
    task = forms.IntegerField(required=False, min_value=1, max_value=10**17)
    period = forms.ChoiceField(choices=PERIODS)

    def __init__(self, user: User, data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial={"period": BudgetPeriod.MONTH.value, "alerts": [50, 80, 95], **(initial or {})})
        self.user = user

    def clean(self) -> dict[str, Any]:
        """`scope` and `target` as the action takes them; what the user does not see is not there."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        kind, _, number = (data.get("of") or "").partition(":")
        self.target: dict[str, Any] = {}
        try:
            self.scope = BudgetScope(kind)
        except ValueError:
            if kind:
                self.add_error("of", "Choose what it limits.")
            return data
        if self.scope is BudgetScope.TASK:
            found = visible_tasks(self.user).filter(pk=data.get("task") or 0).select_related("workspace").first()
            self._take("task", found, "Write the number of a task that you can see.", "task")
        elif self.scope is not BudgetScope.SITE:
            pk = int(number) if number.isascii() and number.isdigit() and len(number) < 18 else 0
            offered = {"user": offered_users, "workspace": offered_workspaces, "profile": offered_profiles}[kind]
            self._take(kind, offered(self.user).filter(pk=pk).first(), "Choose what it limits.", "of")
        return data

    def _take(self, name: str, row: Any, otherwise: str, where: str) -> None:
        if row is None:
            self.add_error(where, otherwise)
        else:
            self.target = {name: row}


def offered_users(user: User) -> Any:
    everybody = User.objects.filter(is_active=True).order_by("username")
    return everybody if user.is_staff else everybody.filter(pk=user.pk)


def offered_workspaces(user: User) -> Any:
    visible = visible_workspaces(user).select_related("owner").order_by("name")
    return visible if user.is_staff else visible.filter(pk__in=_owned(user))


def offered_profiles(user: User) -> Any:
    found = usable_profiles(user).select_related("workspace").order_by("name")
    return found if user.is_staff else found.filter(workspace__in=_owned(user))


def _owned(user: User) -> Any:
    return Membership.objects.filter(user=user, role=Role.OWNER.value).values("workspace")


def offered(user: User) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the user may limit, in groups, for one list to choose from."""
    groups: list[tuple[str, list[tuple[str, str]]]] = [("One task", [("task", "the task with the number below")])]
    if user.is_staff:
        groups.insert(0, ("Everything", [("site", "the whole site")]))
    users: list[User] = list(offered_users(user)[:OFFERED])
    spaces: list[Workspace] = list(offered_workspaces(user)[:OFFERED])
    profiles: list[AgentProfile] = list(offered_profiles(user)[:OFFERED])
    own = {each.pk: "all that I start" if each.pk == user.pk else each.get_username() for each in users}
    groups += [
        ("What a user starts", [(f"user:{pk}", words) for pk, words in own.items()]),
        ("What is done in a workspace", [(f"workspace:{each.pk}", each.name) for each in spaces]),
        ("Model calls of a profile", [(f"profile:{each.pk}", each.name) for each in profiles]),
    ]
    return [group for group in groups if group[1]]
