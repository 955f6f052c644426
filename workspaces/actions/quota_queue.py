"""Who waits at a pool, as the fair queue sees it: rows, read in one go. Decides nothing."""

from __future__ import annotations

import random

from workspaces.domain import fair_queue
from workspaces.domain.fair_queue import Rules, turn
from workspaces.domain.quotas import NOTHING, Claim, Share
from workspaces.domain.retry_budget import RetryPolicy, can_retry, is_hopeless
from workspaces.domain.states import ClaimState

from .quota_book import Book, Place, open_book, read_queue, write

USERS, EACH = 16, 4  # that are read for a settlement: it mostly frees room for one call
GRANT_S = 60.0  # within this a worker takes the task up, or others get its room
jitter = random.random


def rules_of(book: Book) -> Rules:
    return Rules(book.limits, RetryPolicy.from_json(book.policy))


class Waiting:
    """domain/fair_queue.Queue over the rows of a book. Claims whose task waits no longer are withdrawn, not granted."""

    def __init__(self, book: Book, *, users: int, each: int) -> None:
        self.book = book
        self.more = False  # beyond what was read
        self._lines: dict[int, list[Place]] = {}
        # retries that cannot go must not hide a user's other calls behind them
        retries = can_retry(book.state) or is_hopeless(book.state)
        read = read_queue(book, users=users, each=each, retries=retries)
        for place in read:
            self._lines.setdefault(place.claim.user, []).append(place)
        self._cut = {user for user, line in self._lines.items() if len(line) >= each}
        self._last = max((book.shares[user].finish for user in self._lines), default=0.0)
        self._all_users = len(self._lines) < users
        known = {place.claim.task for place in read}
        for task, place in book.places.items():  # queued in this very book
            if place.state is ClaimState.WAITING and task not in known and self._due(place.claim):
                self._lines.setdefault(place.claim.user, []).append(place)
        for user, line in self._lines.items():
            self._lines[user] = [place for place in sorted(line, key=_turn) if self._kept(place)]

    def head(self, now: float, *, retries: bool) -> Claim | None:
        shares = self.book.shares
        firsts = {
            user: next((place.claim for place in line if retries or not place.claim.retry), None)
            for user, line in self._lines.items()
        }
        users = [user for user, claim in firsts.items() if claim is not None or user in self._cut]
        if not users:
            self.more = not self._all_users
            return None
        first = min(users, key=lambda user: (shares[user].finish, user))
        if firsts[first] is None or (not self._all_users and shares[first].finish > self._last):
            self.more = True
            return None
        return firsts[first]

    def share(self, user: int) -> Share:
        return self.book.share(user)

    def granted(self, claim: Claim, share: Share) -> None:
        self._lines[claim.user].remove(self.book.places[claim.task])
        grant(self.book, self.book.place(claim.task))

    def _due(self, claim: Claim) -> bool:
        return claim.not_before is None or claim.not_before <= self.book.now

    def _kept(self, place: Place) -> bool:
        if place.still_waits:
            return True
        withdraw(self.book, self.book.place(place.claim.task))
        return False


def _turn(place: Place) -> tuple[bool, float, float, int]:
    return turn(place.claim)


def grant(book: Book, place: Place) -> None:
    """The row of a claim that the fair queue has granted. Its task is woken once that is committed."""
    place.state = ClaimState.GRANTED
    place.expires_at = book.now + GRANT_S
    book.granted.append(place.claim.task)


def withdraw(book: Book, place: Place) -> None:
    """A claim that waits for nothing any more."""
    fair_queue.withdraw(book.state, book.share(place.claim.user), place.claim, book.now)
    place.state = ClaimState.IDLE


def pump(book: Book, *, users: int = USERS, each: int = EACH) -> bool:
    """Grant what can go, in order. Whether more may be able to: write the book, and open it again for that."""
    if not book.state.waiting or fair_queue.obstacle(book.state, rules_of(book), NOTHING, book.now):
        return False
    waiting = Waiting(book, users=users, each=each)
    granted = fair_queue.pump(book.state, rules_of(book), waiting, book.now, jitter)
    return bool(granted) and (waiting.more or len(granted) >= fair_queue.MOST_AT_ONCE)


def write_and_pump(book: Book, reopen: bool) -> list[int]:
    """Write what was changed; while more can be granted, go on. Returns the tasks that are to be woken."""
    granted = list(book.granted)
    write(book)
    while reopen:
        book = open_book(book.pool_id)
        reopen = pump(book, users=USERS * 4, each=EACH * 4)
        granted += book.granted
        write(book)
    return granted
