"""The forms of a quota pool: what was typed, read and checked as far as it can be here. Saves nothing."""

from __future__ import annotations

from typing import Any

from django import forms

from workspaces.domain.quota_words import LIMITS
from workspaces.domain.retry_budget import RetryPolicy
from workspaces.models import ProfileVersion, QuotaPool, User

POLICY = {
    "retry_ratio": ("Retries for each success", "0.1: at most one retry for ten answers"),
    "retry_cap": ("Retries in store", "so many can follow one another before the circuit opens"),
    "first_backoff_s": ("First wait after a refusal (s)", "when the provider did not say how long; at random up to it"),
    "longest_backoff_s": ("Longest wait after a refusal (s)", "it doubles with each refusal in a row up to this"),
    "first_open_s": ("First opening of the circuit (s)", "then one call tries"),
    "longest_open_s": ("Longest opening of the circuit (s)", "it doubles with each failed try up to this"),
}
DEFAULTS = RetryPolicy()


class PoolForm(forms.Form):
    """Every field is kept as it was typed when it is refused."""

    name = forms.CharField(max_length=200, error_messages={"required": "Give the pool a name."})
    group = forms.CharField(max_length=200, error_messages={"required": "Say for which models."})
    reason = forms.CharField(max_length=2000, error_messages={"required": "Say why, for whoever reads the audit log."})

    def __init__(self, data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial=initial)
        for limit in LIMITS:
            self.fields[limit] = forms.IntegerField(
                required=False,
                min_value=1,
                max_value=10**12,
                error_messages={
                    "invalid": "A whole number, or nothing for no limit.",
                    "min_value": "At least 1, or nothing for no limit.",
                },
            )
        for name in POLICY:
            self.fields[name] = forms.FloatField(
                required=False,
                max_value=86_400,
                error_messages={"invalid": "A number, or nothing for the default."},
            )

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        for name in POLICY:
            value = found.get(name)
            if value is not None and not 0 < value <= 86_400:
                self.add_error(name, "Above 0, or nothing for the default.")
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """What the actions take. Call after `is_valid`."""
        read = self.cleaned_data
        return {
            "name": read["name"],
            "group": read["group"],
            "limits": {limit: read[limit] for limit in LIMITS if read.get(limit) is not None},
            "policy": {name: read[name] for name in POLICY if read.get(name) is not None},
            "reason": read["reason"],
        }

    @property
    def changed_policy(self) -> bool:
        return any(self[name].value() or self[name].errors for name in POLICY)

    @property
    def limit_fields(self) -> list[tuple[Any, str, str]]:
        return [
            (self[limit], f"{words.name} {words.unit}".strip(), words.counts[0].upper() + words.counts[1:])
            for limit, words in LIMITS.items()
        ]

    @property
    def policy_fields(self) -> list[tuple[Any, str, str, str]]:
        return [(self[name], *words, f"{getattr(DEFAULTS, name):g}") for name, words in POLICY.items()]


class NewPoolForm(PoolForm):
    source = forms.ModelChoiceField(
        ProfileVersion.objects.none(), error_messages={"required": "Choose whose address and key."}
    )

    def __init__(self, sources: dict[int, str], data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial)
        self.fields["source"].queryset = ProfileVersion.objects.filter(pk__in=sources)  # type: ignore[attr-defined]


class WeightForm(forms.Form):
    user = forms.CharField(max_length=150, error_messages={"required": "Whose weight?"})
    weight = forms.FloatField(
        min_value=0.01,
        max_value=100,
        error_messages={"required": "A number; 1 is usual.", "invalid": "A number; 1 is usual."},
    )
    weight_reason = forms.CharField(
        max_length=2000, error_messages={"required": "Say why, for whoever reads the audit log."}
    )

    def clean_user(self) -> User:
        name = self.cleaned_data["user"].strip()
        found = User.objects.filter(username=name).first() if "\x00" not in name else None
        if found is None:
            raise forms.ValidationError("There is no user of that name. It is the one that they sign in with.")
        return found


def typed_of(pool: QuotaPool) -> dict[str, Any]:
    """A pool's settings as the form's first content."""
    return {"name": pool.name, "group": pool.group, **pool.limits, **pool.policy}
