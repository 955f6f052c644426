"""The form of an alert rule: what it matches, when it speaks, and to whom. Who may is asked by the action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from workspaces.domain import alert_words
from workspaces.domain.alerts import AlertKind, GroupBy, RuleScope
from workspaces.domain.incident_words import KINDS as INCIDENT_WORDS
from workspaces.domain.incident_words import Words
from workspaces.domain.incidents import IncidentKind, Severity
from workspaces.domain.rule_words import OFFERED, read_span, span
from workspaces.domain.watched import THRESHOLDS, Threshold
from workspaces.models import AlertRule, Endpoint, User
from workspaces.queries.access import usable_profiles, visible_workspaces
from workspaces.queries.alert_rules import endpoints_for, offered_kinds

LISTED = 500
LONGEST_S = 30 * 86_400
SEVERITIES = tuple((each.value, each.value) for each in Severity)
DEFAULTS = {"cooldown": "10 min", "hold": "", "remind": "", "tell_resolved": True, "scope": "site", "of": "me"}


class SpanField(forms.CharField):
    """ "10 min" → 600. Empty is 0."""

    def clean(self, value: Any) -> int:
        text = super().clean(value) or ""
        try:
            seconds = read_span(text)
        except ValueError as problem:
            raise forms.ValidationError(str(problem)) from None
        if seconds > LONGEST_S:
            raise forms.ValidationError("At most 30 days.")
        return seconds


@dataclass(frozen=True, slots=True)
class ThresholdField:
    """A threshold of a kind, with its bound field. `kind`: the class that shows it while the kind is ticked."""

    kind: str
    about: str
    threshold: Threshold
    field: Any


class RuleForm(forms.Form):
    """Every field is kept as it was typed. `rule` None: a new one, whose owner the field `of` says."""

    of = forms.ChoiceField(choices=(("site", "the site"), ("me", "me")), required=False)
    name = forms.CharField(max_length=120, error_messages={"required": "Give the rule a name."})
    kinds = forms.MultipleChoiceField(error_messages={"required": "Choose at least one thing that it alerts of."})
    incident_kinds = forms.MultipleChoiceField(
        choices=[(kind.value, kind.value) for kind in IncidentKind], required=False
    )
    scope = forms.CharField(max_length=40, required=False)
    min_severity = forms.ChoiceField(choices=SEVERITIES, required=False)
    severity = forms.ChoiceField(choices=(("", "as grave as it is"), *SEVERITIES), required=False)
    hold = SpanField(max_length=20, required=False)
    cooldown = SpanField(max_length=20, required=False)
    remind = SpanField(max_length=20, required=False)
    group_by = forms.ChoiceField(choices=[(each.value, alert_words.GROUPS[each]) for each in GroupBy], required=False)
    tell_resolved = forms.BooleanField(required=False)
    endpoints = forms.ModelMultipleChoiceField(
        Endpoint.objects.none(),
        required=False,
        error_messages={"invalid_choice": "One of the endpoints is gone. Choose again."},
    )
    reason = forms.CharField(max_length=2000, required=False)

    def __init__(self, user: User, rule: AlertRule | None = None, data: Any = None) -> None:
        initial = typed_of(rule) if rule is not None else dict(DEFAULTS)
        super().__init__(data, initial=initial)
        self.user, self.rule = user, rule
        kinds = offered_kinds(user, rule.kinds if rule is not None else ())
        self.fields["kinds"].choices = [(kind.value, kind.value) for kind in kinds]  # type: ignore[attr-defined]
        self.fields["endpoints"].queryset = self.offered_endpoints  # type: ignore[attr-defined]
        for kind in THRESHOLDS:
            for threshold in THRESHOLDS[kind]:
                self.fields[threshold.name] = forms.FloatField(
                    required=False,
                    min_value=threshold.least,
                    max_value=threshold.most,
                    error_messages={"invalid": f"A number of {threshold.unit}, or nothing for {threshold.default:g}."},
                )

    @property
    def owner(self) -> User | None:
        """Whose the rule is; only site staff make the site's."""
        if self.rule is not None:
            return self.rule.owner
        of = self.data.get("of") if self.is_bound else self.initial.get("of")
        return None if of == "site" and self.user.is_staff else self.user

    @property
    def offered_endpoints(self) -> Any:
        return endpoints_for(self.owner, self.user)

    @property
    def keeps_endpoints(self) -> bool:
        """The rule is another person's: whom it tells is theirs to see and to say."""
        return self.owner is not None and self.owner.pk != self.user.pk

    def clean_reason(self) -> str:
        reason: str = self.cleaned_data["reason"]
        if self.rule is not None and not reason:
            raise forms.ValidationError("Say why you change it.")
        return reason

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        self.target: dict[str, Any] = {"user": None, "workspace": None, "profile": None}
        kind, _, number = (data.get("scope") or RuleScope.SITE.value).partition(":")
        if kind == RuleScope.SITE.value:
            self.chosen_scope = RuleScope.SITE
            return data
        pk = int(number) if number.isascii() and number.isdigit() and len(number) < 18 else 0
        found = _offered(self.user).get(kind)
        row = found.filter(pk=pk).first() if found is not None else None
        if row is None:
            self.add_error("scope", "Choose where it looks.")
            return data
        self.chosen_scope, self.target[kind] = RuleScope(kind), row
        return data

    @property
    def settings(self) -> dict[str, Any]:
        """What the actions take. Call after `is_valid`."""
        read = self.cleaned_data
        kinds = [kind for kinds in OFFERED.values() for kind in kinds if kind.value in read["kinds"]]
        wanted = {each.name for kind in kinds for each in THRESHOLDS.get(kind, ())}
        return {
            "name": read["name"],
            "kinds": [kind.value for kind in kinds],
            "incident_kinds": read["incident_kinds"] if AlertKind.INCIDENT in kinds else [],
            "scope": self.chosen_scope.value,
            **self.target,
            "min_severity": read["min_severity"] or Severity.INFO.value,
            "severity": read["severity"],
            "params": {name: read[name] for name in sorted(wanted) if read.get(name) is not None},
            "hold_s": read["hold"],
            "cooldown_s": read["cooldown"],
            "remind_s": read["remind"],
            "group_by": read["group_by"] or GroupBy.TROUBLE.value,
            "tell_resolved": read["tell_resolved"],
        }

    def as_looked_for(self) -> AlertRule | None:
        """A rule that is not saved, for a preview; None where that cannot be read. Call after `is_valid`."""
        if set(self.errors) & {"kinds", "incident_kinds", "scope", "min_severity", "group_by"}:
            return None
        read = self.cleaned_data
        return AlertRule(
            owner=self.owner,
            kinds=read["kinds"],
            incident_kinds=read["incident_kinds"],
            scope=self.chosen_scope.value,
            min_severity=read["min_severity"] or Severity.INFO.value,
            group_by=read["group_by"] or GroupBy.TROUBLE.value,
            **self.target,
        )

    # ---- what the template shows

    @property
    def kind_groups(self) -> list[tuple[str, list[tuple[str, Words, bool]]]]:
        chosen = set(self["kinds"].value() or ())
        allowed = {value for value, _ in self.fields["kinds"].choices}  # type: ignore[attr-defined]
        groups = [
            (
                heading,
                [
                    (kind.value, alert_words.KINDS[kind], kind.value in chosen)
                    for kind in kinds
                    if kind.value in allowed
                ],
            )
            for heading, kinds in OFFERED.items()
        ]
        return [group for group in groups if group[1]]

    @property
    def incident_choices(self) -> list[tuple[str, str, str, bool]]:
        chosen = set(self["incident_kinds"].value() or ())
        return [
            (kind.value, INCIDENT_WORDS[kind].name, INCIDENT_WORDS[kind].line, kind.value in chosen)
            for kind in IncidentKind
        ]

    @property
    def scope_groups(self) -> Sequence[tuple[str, list[tuple[str, str]]]]:
        offered = _offered(self.user)
        whole = "the whole site" if self.owner is None else "everything that I see"
        groups = [
            ("Everything", [(RuleScope.SITE.value, whole)]),
            ("What a user starts", [(f"user:{each.pk}", each.get_username()) for each in offered["user"][:LISTED]]),
            ("One workspace", [(f"workspace:{each.pk}", each.name) for each in offered["workspace"][:LISTED]]),
            ("One profile", [(f"profile:{each.pk}", each.name) for each in offered["profile"][:LISTED]]),
        ]
        return [group for group in groups if group[1]]

    @property
    def endpoint_choices(self) -> list[tuple[Endpoint, bool]]:
        chosen = {str(getattr(each, "pk", each)) for each in self["endpoints"].value() or ()}
        return [(each, str(each.pk) in chosen) for each in self.offered_endpoints]

    @property
    def threshold_fields(self) -> list[ThresholdField]:
        return [
            ThresholdField(kind.value, alert_words.KINDS[kind].name, threshold, self[threshold.name])
            for kind, thresholds in THRESHOLDS.items()
            for threshold in thresholds
        ]


def typed_of(rule: AlertRule) -> dict[str, Any]:
    """A rule as the form's first content."""
    target = rule.user_id or rule.workspace_id or rule.profile_id
    return {
        "of": "site" if rule.owner_id is None else "me",
        "name": rule.name,
        "kinds": rule.kinds,
        "incident_kinds": rule.incident_kinds,
        "scope": rule.scope if target is None else f"{rule.scope}:{target}",
        "min_severity": rule.min_severity,
        "severity": rule.severity,
        "hold": span(rule.hold_s) if rule.hold_s else "",
        "cooldown": span(rule.cooldown_s),
        "remind": span(rule.remind_s) if rule.remind_s else "",
        "group_by": rule.group_by,
        "tell_resolved": rule.tell_resolved,
        "endpoints": [endpoint.pk for endpoint in rule.endpoints.all()],
        **rule.params,
    }


def _offered(user: User) -> dict[str, Any]:
    everybody = User.objects.filter(is_active=True).order_by("username")
    return {
        "user": everybody if user.is_staff else everybody.filter(pk=user.pk),
        "workspace": visible_workspaces(user).order_by("name", "pk"),
        "profile": usable_profiles(user).order_by("name", "pk"),
    }
