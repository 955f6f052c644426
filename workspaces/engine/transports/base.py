"""What every way of sending has in common: what it is given, what it gives back, and how it says that it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workspaces.domain.endpoints import AttemptOutcome

TOTAL_S = 20.0  # of one try, from the name to the answer: the specification asks for 15 to 30
CONNECT_S = 8.0
KEPT_BYTES = 4_096  # of an answer


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message on its way. `id` is the same at every try. `body` has its links filled in.

    `address`: a URL or a mailbox. `secrets`: what is signed with, the newest first. `tokens`: what in the body lets
    somebody act; together with the secrets, what no answer may bring back onto a page. `private`: networks that the
    site allows.
    """

    id: str
    type: str
    body: Mapping[str, Any]
    address: str
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sent:
    """It was taken. Nothing in it is secret; all texts are bounded and clean."""

    address: str = ""  # that was connected to
    request_headers: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response_body: str = ""


class NotSent(Exception):
    """The try failed; the text says why, without the address's path or any secret.

    `permanent`: another try would end in the same way. `heard`: the answer, if there was one. `retry_after_s`: what
    the receiver asked for.
    """

    def __init__(
        self,
        words: str,
        outcome: AttemptOutcome,
        *,
        permanent: bool = False,
        heard: Sent | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(words)
        self.outcome = outcome
        self.permanent = permanent
        self.heard = heard or Sent()
        self.retry_after_s = retry_after_s


class Transport(Protocol):
    async def send(self, parcel: Parcel) -> Sent:
        """Within TOTAL_S. Raises NotSent, and nothing else but what is a fault of ours. Runs in the courier's loop:
        it must never block, and never be waited for by anything else that is sent."""


__all__: Sequence[str] = ["CONNECT_S", "KEPT_BYTES", "TOTAL_S", "NotSent", "Parcel", "Sent", "Transport"]
