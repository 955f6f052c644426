"""Rules of alerts: made, changed, muted, switched and retired, with what becomes of the alerts that are open."""

from __future__ import annotations

import pytest

from tests.actions.test_alerts import no_other_rules
from tests.harness import make_user
from workspaces.actions.alert_rules import (
    install_defaults,
)
from workspaces.domain.alert_defaults import DEFAULTS
from workspaces.models import AlertRule, User

pytestmark = pytest.mark.django_db
__all__ = ["no_other_rules"]


@pytest.fixture
def staff() -> User:
    return make_user(is_staff=True)


def test_the_default_rules_are_there_and_are_put_in_once() -> None:
    assert set(AlertRule.objects.exclude(builtin="").values_list("builtin", flat=True)) == {d.slug for d in DEFAULTS}
    assert install_defaults() == 0
    AlertRule.objects.filter(builtin="quota").delete()
    assert install_defaults() == 1
