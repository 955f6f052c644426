"""The clock of everything that is written: the database's. A worker's own may be off by minutes, and never counts.

Within `writing`, use `pen.now`, which costs no round trip.
"""

from __future__ import annotations

from workspaces.queries.database import database_now

__all__ = ["database_now"]
