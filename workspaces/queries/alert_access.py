"""Who may make and change an alert rule, and what it may be about.

- Site staff: the site's rules, and everybody's.
- Everybody: rules of their own, on what they see. They tell endpoints of their own alone.
"""

from __future__ import annotations

from workspaces.models import AgentProfile, AlertRule, User, Workspace

from .access import usable_profiles, visible_workspaces


def may_make_rule(actor: User, owner: User | None) -> bool:
    return actor.is_staff or (owner is not None and owner.pk == actor.pk)


def may_change_rule(actor: User, rule: AlertRule) -> bool:
    return actor.is_staff or (rule.owner_id is not None and rule.owner_id == actor.pk)


def sees_scope(
    owner: User | None, *, user: User | None, workspace: Workspace | None, profile: AgentProfile | None
) -> bool:
    """Whether a rule of this owner may be about it. `owner` None: the site."""
    if owner is None or owner.is_staff:
        return True
    if user is not None:
        return user.pk == owner.pk
    if workspace is not None:
        return visible_workspaces(owner).filter(pk=workspace.pk).exists()
    return profile is None or usable_profiles(owner).filter(pk=profile.pk).exists()
