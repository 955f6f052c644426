"""What a provider says of its own limits goes into the pool: from the headers of answers and refusals."""

from __future__ import annotations

from workspaces.domain.quotas import Limits
from workspaces.domain.rate_headers import RateHint
from workspaces.domain.states import NoticeKind

from .quota_book import Book

_NAMES = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
}


def learn(book: Book, hint: RateHint | None) -> None:
    """Limits that are new or have changed, and a pool that is used up until it is filled again."""
    if hint is None:
        return
    for limit, (value, header) in hint.pool_limits().items():
        before = book.learned.get(limit, {}).get("value")
        if value == before:
            continue
        book.learned[limit] = {"value": value, "at": book.at.isoformat(), "from": header}
        book.learned_changed = True
        was = f", it was {before:,}" if before else ""
        words = f"The provider says: {value:,} {limit.replace('_', ' ')}{was}"
        book.notice(NoticeKind.LIMIT_LEARNED, words, limit=limit, value=value, before=before, header=header)
    if book.learned_changed:
        book.limits = Limits.binding(book.by_hand, book.learned)
    for kind, left in hint.remaining.items():
        reset_s = hint.resets_s.get(kind)
        if left == 0 and reset_s and book.now + reset_s > book.state.blocked_until:
            book.state.blocked_until = book.now + reset_s
            name = _NAMES.get(kind.removesuffix("_per_day"), kind)
            book.blocked_reason = f"the provider says that no {name} are left for {reset_s:.0f} s"
