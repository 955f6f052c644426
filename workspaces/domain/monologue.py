"""Finds talk in place of work: replies that say the same, a chant within one, a question asked again. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter

from workspaces.domain.found import finding, first_words, of_turn, steps
from workspaces.domain.incidents import Evidence, Finding, IncidentKind
from workspaces.domain.sameness import alike
from workspaces.domain.seen import ASK_TOOLS, Seen, shown
from workspaces.domain.thresholds import Thresholds
from workspaces.domain.trail import SeenCall, Turn

K = IncidentKind


def same_text(view: Seen, limits: Thresholds) -> list[Finding]:
    """Replies without a call that say nearly the same, unless paralysis has spoken of those before them already."""
    if not limits.same_text:
        return []
    run: list[Turn] = []
    for turn in reversed(view.turns):
        if turn.calls or not turn.text.strip() or (run and not alike(turn.text, run[0].text)):
            break
        run.append(turn)
    silent = list(itertools.takewhile(lambda turn: not turn.calls, reversed(view.turns)))
    told = bool(limits.no_action) and len(silent) > max(len(run), limits.no_action)
    if len(run) < limits.same_text or told:
        return []
    run.reverse()
    quote = first_words(run[-1].text)
    where = steps([turn.step for turn in run])
    return [
        finding(
            K.LOOP,
            "same_text",
            [of_turn(turn, first_words(turn.text)) for turn in run],
            f"The replies at {where} say nearly the same and call no tool: “{quote}”",
            about="",
            subject="text",
            count=len(run),
            threshold=limits.same_text,
        )
    ]


_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_CHANTED = 8
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")


def chanting(view: Seen, limits: Thresholds) -> list[Finding]:
    """One reply in which the same sentence comes again and again (outside code blocks and tables)."""
    if not limits.same_text or not view.turns:
        return []
    turn = view.turns[-1]
    text = _FENCE.sub(" ", turn.text[:20_000])
    sentences = [" ".join(part.split()).lower() for part in _SENTENCE.findall(text)]
    sentences = [part for part in sentences if len(part) >= 12 and "|" not in part and not part.startswith(("-", "*"))]
    if len(sentences) < _CHANTED:
        return []
    sentence, count = Counter(sentences).most_common(1)[0]
    if count < _CHANTED or count < 0.5 * len(sentences):
        return []
    return [
        finding(
            K.LOOP,
            "chanting",
            [of_turn(turn, first_words(sentence))],
            f"The reply at step {turn.step} says the same sentence {count} times: “{first_words(sentence)}”",
            about="",
            subject="text",
            count=count,
            threshold=_CHANTED,
        )
    ]


def same_question(view: Seen, limits: Thresholds) -> list[Finding]:
    """The same question to an operator, answered before, with nothing done in between."""
    turns = view.trail.turns
    if not limits.same_question or not turns or not any(call.name in ASK_TOOLS for call in turns[-1].calls):
        return []
    asked: list[SeenCall] = []
    for turn, row in zip(reversed(turns), reversed(view.whole), strict=True):
        questions = [call for call in turn.calls if call.name in ASK_TOOLS]
        if any(look.changes and not look.failed for look in row):
            break
        if not questions:
            continue
        if asked and not alike(questions[-1].arguments, asked[0].arguments):
            break
        asked.append(questions[-1])
    if len(asked) < limits.same_question:
        return []
    asked.reverse()
    return [
        finding(
            K.LOOP,
            "same_question",
            [Evidence(call.seq, call.step, shown(call), tool_call=call.tool_call) for call in asked],
            f"The operator was asked the same question at {steps([call.step for call in asked])}, with nothing done "
            f"in between: {shown(asked[-1], 200)}",
            about=asked[-1].name,
            subject=f"question\n{asked[-1].name}",
            count=len(asked),
            threshold=limits.same_question,
        )
    ]


RULES = (same_question, same_text, chanting)
