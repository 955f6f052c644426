"""A pool is looked at without a call at hand: who is next is granted, who left gives back what it had."""

from __future__ import annotations

from django.db import transaction

from workspaces.domain import fair_queue, retry_budget
from workspaces.domain.quotas import NOTHING
from workspaces.domain.states import ClaimState

from .quota_book import Book, NoSuchPool, Place, open_book, read_places
from .quota_queue import pump, rules_of, withdraw, write_and_pump
from .quotas import tell_circuit

USERS, EACH = 200, 20  # that are read for one look


def look_at_pool(pool: int, stale: list[int]) -> list[int]:
    """Grant what can go, after the stale claims (tasks) have given back what they had. Whom to wake, after this."""
    with transaction.atomic():
        try:
            book = open_book(pool)
        except NoSuchPool:
            return []
        for place in read_places(book, stale):
            _give_up(book, place)
        more = pump(book, users=USERS, each=EACH)
        tell_circuit(book)
        return write_and_pump(book, more)


def _give_up(book: Book, place: Place) -> None:
    """A claim that is stale, as it was read under the lock."""
    if place.state is ClaimState.WAITING and not place.still_waits:
        withdraw(book, book.place(place.claim.task))
    elif place.state is ClaimState.GRANTED and (not place.may_come or (place.expires_at or 0.0) <= book.now):
        retry_budget.gave_up(book.state, place.claim.task)
        share = book.share(place.claim.user)
        fair_queue.settle(book.state, rules_of(book), share, place.claim, NOTHING, book.now)
        place.state, place.expires_at = ClaimState.IDLE, None
        book.place(place.claim.task)
