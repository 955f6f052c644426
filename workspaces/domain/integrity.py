"""What the auditor has to compute, because SQL cannot: the chain of hashes, and the hash that an approval is bound to.

Pure. The rules that the database answers by itself are in queries/integrity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workspaces.domain.effects import arguments_hash
from workspaces.domain.events import GENESIS, event_hash


@dataclass(frozen=True, slots=True)
class Link:
    """An event as it was read."""

    task_id: int
    seq: int
    kind: str
    branch: int
    step: int | None
    actor: str
    at: datetime
    data: Any
    previous_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Broken:
    """One row that breaks a rule. `task_id` is None for what concerns the whole site."""

    task_id: int | None
    what: str


def broken_links(links: Iterable[Link]) -> Iterator[Broken]:
    """Events that are not what was written, or do not follow the one before. `links`: by task, then by seq."""
    before: Link | None = None
    for link in links:
        if before is None or before.task_id != link.task_id:
            before = None
        expected = before.hash if before else GENESIS
        if link.previous_hash != expected:
            yield Broken(link.task_id, f"event {link.seq} does not follow the one before it")
        if _digest(link) != link.hash:
            yield Broken(link.task_id, f"event {link.seq} ({link.kind}) is not what was written")
        if before and link.branch < before.branch:
            yield Broken(link.task_id, f"event {link.seq} goes back from branch {before.branch} to {link.branch}")
        before = link


def _digest(link: Link) -> str:
    return event_hash(
        link.previous_hash,
        seq=link.seq,
        kind=link.kind,
        branch=link.branch,
        step=link.step,
        actor=link.actor,
        at=link.at,
        data=link.data,
    )


def fits_hash(name: str, arguments: Any, digest: str) -> bool:
    """Whether these are the arguments that the hash was made of."""
    return isinstance(arguments, dict) and arguments_hash(name, arguments) == digest
