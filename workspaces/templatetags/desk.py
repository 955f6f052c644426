"""How the desk's pages write numbers, times, states and names. Formats only; reads nothing but the frame's counts."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workspaces.models import Task, User
from workspaces.queries.escalations import Card, make_card
from workspaces.queries.frame import Frame, frame_of
from workspaces.web.trace_rows import DiffLine
from workspaces.web.trace_rows import diff_lines as lines_of

register = template.Library()

# word → (tone, icon): colour is never the only sign
STATUS_LOOKS: dict[str, tuple[str, str]] = {
    "queued": ("grey", "queued"),
    "running": ("blue", "play"),
    "waiting": ("amber", "clock"),
    "pausing": ("violet", "pausing"),
    "paused": ("violet", "pause"),
    "succeeded": ("green", "check"),
    "failed": ("red", "cross"),
    "cancelled": ("grey", "ban"),
    # tool and model calls, escalations
    "proposed": ("grey", "queued"),
    "held": ("amber", "hand"),
    "approved": ("blue", "check"),
    "done": ("green", "check"),
    "abandoned": ("grey", "ban"),
    "replied": ("green", "check"),
    "dropped": ("grey", "ban"),
    "open": ("amber", "hand"),
    "answered": ("green", "check"),
    "expired": ("red", "clock"),
    "withdrawn": ("grey", "ban"),
    # verdicts
    "allow": ("green", "check"),
    "correct": ("amber", "rewind"),
    "hold": ("amber", "hand"),
    "replay": ("violet", "rewind"),
    # effects
    "none": ("grey", "check"),
    "workspace": ("grey", "folder"),
    "external": ("amber", "bolt"),
    "irreversible": ("red", "alert"),
    # result classes
    "ok": ("green", "check"),
    "error": ("red", "cross"),
    "empty": ("amber", "alert"),
    "ambiguous": ("amber", "alert"),
    "truncated": ("amber", "alert"),
    "timeout": ("red", "clock"),
    # incidents: severity, state, how far the runtime went
    "info": ("grey", "flag"),
    "warning": ("amber", "alert"),
    "critical": ("red", "alert"),
    "acknowledged": ("blue", "hand"),
    "resolved": ("green", "check"),
    "noted": ("grey", "file"),
    "nudged": ("blue", "message"),
    "escalated": ("amber", "hand"),
    "stopped": ("red", "ban"),
    # alerts and what was told of them
    "pending": ("grey", "clock"),
    "delivered": ("green", "check"),
    # roles
    "viewer": ("grey", "person"),
    "operator": ("blue", "hand"),
    "owner": ("violet", "key"),
}


@register.simple_tag
def icon(name: str) -> SafeString:
    """A drawing beside words; screen readers skip it."""
    return format_html(
        '<svg class="icon" aria-hidden="true" viewBox="0 0 16 16"><use href="{}#{}"></use></svg>',
        static("icons.svg"),
        name,
    )


@register.simple_tag
def badge(word: str, tone: str = "grey", icon_name: str = "", title: str = "") -> SafeString:
    drawing = icon(icon_name) if icon_name else ""
    return format_html('<span class="badge tone-{}" title="{}">{}{}</span>', tone, title, drawing, word)


@register.filter
def status_badge(word: Any) -> SafeString:
    """The badge of any state, verdict, effect, result class or role."""
    text = str(getattr(word, "value", word) or "")
    tone, drawing = STATUS_LOOKS.get(text, ("grey", ""))
    return badge(text.replace("_", " "), tone, drawing)


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """A time, relative; the absolute one on hover. app.js keeps it fresh."""
    return _time(moment, "")


@register.filter
def deadline(moment: datetime | None) -> SafeString | str:
    """Like `ago`, and marked when it is past."""
    return _time(moment, "data-deadline")


@register.filter
def lasting(moment: datetime | None) -> SafeString | str:
    """How long a state has lasted: "for 24 s"."""
    return _time(moment, "data-lasting")


def _time(moment: datetime | None, attribute: str) -> SafeString | str:
    if moment is None:
        return "–"
    now = timezone.now()
    overdue = " overdue" if attribute == "data-deadline" and moment < now else ""
    return format_html(
        '<time class="nowrap{}" datetime="{}" title="{} UTC" data-relative{}>{}</time>',
        overdue,
        moment.isoformat(),
        f"{moment:%Y-%m-%d %H:%M:%S}",
        format_html(" {}", attribute) if attribute else "",
        lasted(moment, now) if attribute == "data-lasting" else relative(moment, now),
    )


def relative(moment: datetime, now: datetime) -> str:
    """The same words as app.js: "now", "12 s ago", "in 3 h"."""
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    if size < 5:
        return "now"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if size >= length:
            text = f"{int(size // length)} {unit}"
            return f"in {text}" if seconds < 0 else f"{text} ago"
    return "now"


def lasted(moment: datetime, now: datetime) -> str:
    """The same words as app.js: "just now", "for 12 s"."""
    words = relative(moment, now)
    return f"for {words.removesuffix(' ago')}" if words.endswith(" ago") else "just now"


@register.filter
def duration(seconds: float | None) -> str:
    """0.25 → "0.25 s", 75 → "1 min 15 s", 7300 → "2 h 1 min"."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


@register.filter
def tokens(count: int | None) -> SafeString | str:
    """Short, exact on hover."""
    if count is None:
        return "–"
    return format_html('<span title="{} tokens">{}</span>', f"{count:,}", short(count))


def short(count: int) -> str:
    """999 → "999", 12345 → "12.3k", 2500000 → "2.5M"."""
    for size, suffix in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.1f}".rstrip("0").rstrip(".") + suffix
    return str(count)


@register.filter
def figure(count: int) -> SafeString:
    """A count in a narrow place: short, exact on hover."""
    return format_html('<span title="{}">{}</span>', f"{count:,}", short(count))


@register.filter
def usd(amount: Decimal | None) -> SafeString | str:
    """Short, all nine places on hover. None is a price that nobody told us, not zero."""
    if amount is None:
        return "price unknown"
    places = 2 if amount == 0 or abs(amount) >= 1 else 4
    text = f"{amount:,.{places}f}"
    if amount and not text.strip("-0."):
        text = f"<{Decimal(1).scaleb(-places):f}"
    return format_html('<span title="{} USD">{}</span>', f"{amount:.9f}", f"${text}".replace("$<", "<$"))


@register.filter
def price(amount: Decimal | None) -> str:
    """A price as it was set: 2.5 → "$2.50", 0.0375 → "$0.0375". None is one that nobody knows."""
    if amount is None:
        return "unknown"
    exact = round(amount, 9).normalize()  # a price has nine places; that of one unit times a million may have a rest
    places = max(2, -int(exact.as_tuple().exponent)) if exact.is_finite() else 0
    return f"${exact:,.{places}f}"


@register.filter
def at(values: dict[str, Any] | None, key: str) -> Any:
    """The value of a key that only the template knows, or nothing."""
    return (values or {}).get(key, "")


@register.simple_tag
def task_cost(task: Task) -> SafeString | str:
    """What a task has cost so far, with the calls whose price is unknown named."""
    if not task.unpriced_calls:
        return usd(task.cost_usd)
    calls = f"{task.unpriced_calls} model call{'' if task.unpriced_calls == 1 else 's'}"
    known = format_html("{} + ", usd(task.cost_usd)) if task.cost_usd else ""
    return format_html('{}<span class="faint" title="{} without a known price">price unknown</span>', known, calls)


@register.filter
def percent(share: float | None) -> str:
    """0.256 → "26 %"."""
    return "–" if share is None else f"{100 * share:.0f} %"


@register.filter
def signed(number: float) -> str:
    """+3.5, -12: with a sign, also a plus."""
    return f"{number:+,}"


@register.filter("bytes")
def size(count: int | None) -> SafeString | str:
    """Binary units, the exact count on hover."""
    if count is None:
        return "–"
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    text = f"{value:.0f}" if unit == "B" else f"{value:.1f}".removesuffix(".0")
    return format_html('<span class="nowrap" title="{} bytes">{} {}</span>', f"{count:,}", text, unit)


@register.filter
def pretty(value: Any) -> str:
    """JSON for people to read."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False, default=str)


@register.filter
def person(user: User | None) -> str:
    """A person's name, or the runtime's."""
    return (user.get_full_name() or user.get_username()) if user is not None else "agentdesk"


@register.filter
def tail(text: str, characters: int) -> str:
    """The end of a long text, from the beginning of a line where one is near."""
    if len(text) <= characters:
        return text
    cut = text[-characters:]
    start = cut.find("\n") + 1
    return "…\n" + (cut[start:] if 0 < start < characters // 4 else cut)


@register.filter
def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


@register.filter
def diff_lines(diff: str) -> list[DiffLine]:
    """A unified diff, line by line, each with how it looks."""
    return lines_of(diff)


@register.filter
def words(value: str) -> str:
    """held_call → held call, trace kinds likewise."""
    return str(value).replace("_", " ").replace(".", " · ")


@register.simple_tag(takes_context=True)
def the_card(context: template.Context) -> Card:
    """The `card` of the context; else one made of its `escalation` and `can_operate`."""
    card = context.get("card")
    if isinstance(card, Card):
        return card
    return make_card(context["escalation"], bool(context.get("can_operate")))


@register.simple_tag(takes_context=True)
def desk_frame(context: template.Context) -> Frame:
    """What the frame around every page shows: counts, holds, banners."""
    request = context.get("request")
    if request is None or not hasattr(request, "user"):
        return Frame()
    if not hasattr(request, "desk_frame"):
        request.desk_frame = frame_of(request.user, request.path)
    return request.desk_frame
