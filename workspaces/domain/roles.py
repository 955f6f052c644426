"""What a member may do in a workspace. Pure."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Each includes the one before: a viewer reads, an operator steers, an owner changes members and limits."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    OWNER = "owner"


_RANK = {Role.VIEWER: 1, Role.OPERATOR: 2, Role.OWNER: 3}


def at_least(role: Role | None, needed: Role) -> bool:
    return role is not None and _RANK[role] >= _RANK[needed]
