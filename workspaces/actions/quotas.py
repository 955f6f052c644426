"""Quota pools: the one place that decides whether a model call may be made now. See actions/admission.py.

Every function locks one pool and changes it in the caller's transaction; tasks are never locked here. Whose turn has
come is marked in its claim, and its task is woken after the commit, or by the scheduler (quota_sweep.py).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import transaction

from workspaces.domain import fair_queue, retry_budget, waits
from workspaces.domain.alerts import AlertKind, Edge
from workspaces.domain.incidents import Severity
from workspaces.domain.quotas import NOTHING, Claim, Use
from workspaces.domain.rate_headers import RateHint
from workspaces.domain.states import ClaimState, ModelCallStatus, NoticeKind, WaitingFor
from workspaces.domain.text import clip
from workspaces.models import ModelCall, ProfileVersion, QuotaNotice
from workspaces.providers.base import ProviderError, TokenUsage

from .alert_signals import signal
from .pen import Pen
from .quota_book import Book, Place, open_book, read_lines, write
from .quota_learning import learn
from .quota_pools import forget_pools as forget_pools
from .quota_pools import pool_of as pool_of
from .quota_queue import GRANT_S, jitter, pump, rules_of, withdraw, write_and_pump
from .quota_wakes import wake_granted
from .wishes import Waits, Wish

HELD_LONG_S = 60.0  # a provider that wants less is not exhausted: the calls go on by themselves
LOOKED_AT_AGAIN_S = 600.0  # at the latest, what a waiting task is told about its time is reckoned anew
# of a failed call the provider may have read the prompt; of these it did, as far as anybody knows
_READ = frozenset({"timeout", "malformed"})


def lease(pen: Pen, call: ModelCall, wish: Wish) -> bool:
    """Whether the pool has room now, and nobody stands before the task; what the call says is then held for it.

    False: whoever asked rolls all of this back, and takes a place in the queue.
    """
    assert call.pool_id is not None
    book, place = _opened(pen, call.pool_id)
    waited = place.state in (ClaimState.WAITING, ClaimState.GRANTED) and place.claim.queued_at
    more = _ask(pen, book, place, wish)
    if place.state is not ClaimState.GRANTED:
        return False
    claim = place.claim
    place.state = ClaimState.LEASED
    place.model_call = call.pk
    place.expires_at = book.now + wish.version.model_timeout_s + 60
    book.minute["calls"] += 1
    book.minute["retries"] += bool(claim.retry)
    if waited:
        call.waited_s = book.waited_s = max(0.0, book.now - waited)  # in hand too: it is saved again with its reply
        book.waited_for = call.pk
    _finish(book, more, besides=claim.task)
    return True


def queue(pen: Pen, wish: Wish) -> Waits | None:
    """Take a place in the queue. None: it was the task's turn at once, and room is kept for it."""
    book, place = _opened(pen, pool_of(wish.version, wish.model))
    newly = place.state is not ClaimState.WAITING
    more = _ask(pen, book, place, wish)
    if place.state is ClaimState.GRANTED:
        _finish(book, more, besides=place.claim.task)
        return None
    if newly:
        book.minute["waits"] += 1
    book.longest_queue = book.state.waiting
    reason, until = told(book, place.claim)
    if wish.retry:
        reason = f"{reason}. {_last_error(pen)}".rstrip(". ")
    _finish(book, more)
    return Waits(WaitingFor.QUOTA, reason, until)


def settle(pen: Pen, call: ModelCall, usage: TokenUsage | None, rate: RateHint | None = None) -> None:
    """What was held is given back, what was taken is booked, and who is next is granted."""
    found = _leased(pen, call)
    if found is None:
        return
    book, place = found
    learn(book, rate)
    retry_budget.succeeded(book.state, rules_of(book).policy, place.claim.task, place.claim.granted_at or book.now)
    _end(book, place, counted(book.provider, usage))
    _finish(book, pump(book))


def failed(pen: Pen, call: ModelCall, error: ProviderError) -> None:
    """The same, and the pool learns from the failure: when to ask again, and whether at all."""
    found = _leased(pen, call)
    if found is None:
        return
    book, place = found
    task, policy = place.claim.task, rules_of(book).policy
    used: Use | None = Use(1, 0, 0)
    not_before = None
    if error.kind in retry_budget.REFUSALS and not error.permanent:
        learn(book, error.rate)
        granted_at = place.claim.granted_at or book.now
        held_before_s = max(0.0, book.state.blocked_until - book.now)
        retry_budget.refused(book.state, policy, task, granted_at, book.now, error.retry_after_s, jitter)
        book.minute["refusals"] += 1
        # whoever draws on the pool reads this: what a provider told a call of somebody else's is theirs
        book.blocked_reason = f"the provider turned a call away ({error.kind})"
        held_s = max(0.0, book.state.blocked_until - book.now)
        words = f"A call was turned away ({error.kind}): nothing is sent for {held_s:.1f} s"
        told_s = error.retry_after_s
        book.notice(
            *(NoticeKind.REFUSED, words), task=task, model_call=call.pk, retry_after_s=told_s, error_kind=error.kind
        )
        if held_s >= HELD_LONG_S > held_before_s:  # of many that are turned away together, the first one tells of it
            _signal(book, "held_back", words, Severity.WARNING)
    elif error.permanent:
        retry_budget.gave_up(book.state, task)
    else:
        not_before = retry_budget.failed(book.state, policy, task, call.attempt, book.now, jitter)
        if error.kind in _READ:
            used = None
        elif error.kind == "server":
            used = Use(1, place.claim.input_tokens, 0)
    _end(book, place, used, not_before=not_before)
    _finish(book, pump(book))


def dropped(pen: Pen, call: ModelCall) -> None:
    """The same for a call of which nobody knows what it took."""
    found = _leased(pen, call)
    if found is None:
        return
    book, place = found
    retry_budget.gave_up(book.state, place.claim.task)
    _end(book, place, None)
    _finish(book, pump(book))


def fell_back(pen: Pen, call: ModelCall, *, instead_of: int, why: str) -> None:
    """Another profile's model answers in the place of a pool's."""
    QuotaNotice.objects.create(
        pool_id=instead_of,
        kind=NoticeKind.FALLBACK.value,
        at=pen.now,
        words=f"{call.model} answers instead: {why}",
        data={"pool": call.pool_id, "version": call.version_id, "why": why},
        task=pen.task,
        model_call=call,
    )


def told(book: Book, claim: Claim) -> tuple[str, datetime]:
    """Why a waiting claim waits, in words with its place and time, and when that is looked at again."""
    lines = read_lines(book)
    place = waits.place_of(claim.task, lines, book.limits)
    number, ahead = (place.number, place.ahead) if place else (book.state.waiting, claim.use)
    wait = waits.why(book.state, rules_of(book), claim, book.now, number=number)
    expected_s = waits.expected_wait_s(book.state, book.limits, ahead, book.now)
    if claim.not_before is not None:
        expected_s = max(expected_s, claim.not_before - book.now)
    words = f"{book.name}: {wait.words}"
    if number > 1:
        words += f"; place {number:,} of {book.state.waiting:,}, in about {expected_s:.0f} s"
    until = datetime.fromtimestamp(book.now, UTC) + timedelta(seconds=min(max(expected_s, 1.0), LOOKED_AT_AGAIN_S))
    return words, until


def counted(provider: str, usage: TokenUsage | None) -> Use | None:
    """What the provider counts against its limits. None: it has not said."""
    if usage is None:
        return None
    into = usage.prompt_tokens
    if provider == ProfileVersion.Provider.ANTHROPIC:
        into -= usage.cached_input_tokens  # what is read from its cache is free of the limit there
    return Use(1, into, usage.output_tokens)


def _opened(pen: Pen, pool_id: int) -> tuple[Book, Place]:
    task = pen.task
    book = open_book(pool_id, user=task.created_by_id, task=task.pk)
    place = book.places.get(task.pk)
    if place is None:
        place = book.places[task.pk] = Place(Claim(task.created_by_id, task.pk, 0, 0))
    book.changed.add(task.pk)
    return book, place


def _ask(pen: Pen, book: Book, place: Place, wish: Wish) -> bool:
    """Bring the claim into the queue and grant it, if it is its turn. Whether others may be granted still."""
    claim, task = place.claim, pen.task
    same = (claim.input_tokens, claim.output_tokens) == (wish.input_tokens, wish.output_tokens)
    if place.state is ClaimState.GRANTED and same and fair_queue.may_be_sent(book.state, claim, book.now):
        return False
    share, rules = book.share(claim.user), rules_of(book)
    regranted = place.state is ClaimState.GRANTED
    if place.state in (ClaimState.GRANTED, ClaimState.LEASED):
        # it wants something else than was kept for it, or nobody sends now; or a lease whose end nobody has told of
        retry_budget.gave_up(book.state, claim.task)
        _end(book, place, NOTHING if regranted else None)
    claim.input_tokens, claim.output_tokens = wish.input_tokens, wish.output_tokens
    claim.interactive = task.interactive
    claim.retry = wish.retry and not regranted  # what it costs was taken at the first grant
    if place.state is ClaimState.IDLE:
        queued_at = claim.queued_at
        if claim.not_before is not None and claim.not_before <= book.now:
            claim.not_before = None
        fair_queue.enqueue(book.state, rules, share, claim, book.now, only=not book.others_wait)
        if regranted:
            claim.queued_at = queued_at
        place.state = ClaimState.WAITING
    if book.state.waiting == 1:
        if not fair_queue.take(book.state, rules, share, claim, book.now, jitter):
            place.state = ClaimState.GRANTED
            place.expires_at = book.now + GRANT_S
        return False
    return pump(book)


def _leased(pen: Pen, call: ModelCall) -> tuple[Book, Place] | None:
    """The pool and the lease of a call. None: it has none, or that was given back."""
    if call.pool_id is None:
        return None
    book, place = _opened(pen, call.pool_id)
    if place.state is not ClaimState.LEASED or place.model_call != call.pk:
        return None
    return book, place


def _end(book: Book, place: Place, used: Use | None, *, not_before: float | None = None) -> None:
    """A granted or leased claim is over. `used` None: nobody knows, so all that was held counts."""
    claim = place.claim
    if place.state is ClaimState.LEASED:
        booked = claim.use if used is None else used
        book.minute["input_tokens"] += booked.input_tokens
        book.minute["output_tokens"] += booked.output_tokens
    fair_queue.settle(book.state, rules_of(book), book.share(claim.user), claim, used, book.now)
    claim.not_before, claim.retry = not_before, False
    place.state, place.model_call, place.expires_at = ClaimState.IDLE, None, None


def _finish(book: Book, more: bool, *, besides: int | None = None) -> None:
    """Write it all, and wake whose turn has come (but `besides`, who is awake) after the commit."""
    tell_circuit(book)
    woken = [task for task in write_and_pump(book, more) if task != besides]
    if woken:
        transaction.on_commit(partial(wake_granted, woken), robust=True)


def _last_error(pen: Pen) -> str:
    error = (
        ModelCall.objects.filter(task=pen.task, status=ModelCallStatus.FAILED.value)
        .order_by("-pk")
        .values_list("attempt", "error")
        .first()
    )
    return f"Attempt {error[0]} failed: {clip(error[1], 300)}" if error else ""


def tell_circuit(book: Book) -> None:
    """A notice where the circuit is not what it was."""
    state = book.state
    if state.circuit == book.circuit:
        return
    if state.circuit == retry_budget.OPEN:
        seconds = max(0.0, state.open_until - book.now)
        words = f"Too many calls failed for the few that succeeded: nothing is sent for {seconds:.0f} s"
        book.blocked_reason = words
        book.notice(NoticeKind.CIRCUIT_OPENED, words, trips=state.trips)
        _signal(book, "circuit", words, Severity.ERROR)
    elif state.circuit == retry_budget.HALF_OPEN:
        book.notice(NoticeKind.HALF_OPENED, "One call tries whether the provider answers again", task=state.probe)
    else:
        book.notice(NoticeKind.CLOSED, "The provider answers again")


def _signal(book: Book, detail: str, words: str, severity: Severity) -> None:
    """Nothing is sent to the pool for now. Whoever watches the pools (alert_watches.py) sees when that is over, and
    how long calls wait at one that is merely full.
    """
    signal(
        AlertKind.QUOTA_EXHAUSTED,
        Edge.BEGAN,
        f"pool:{book.pool_id}",
        words=f"{book.name}: {words}",
        severity=severity,
        at=book.at,
        detail=detail,
        cause=f"pool:{book.pool_id}",
        pool=book.pool_id,
    )


__all__ = ["dropped", "failed", "forget_pools", "lease", "pool_of", "queue", "settle", "withdraw", "write"]
