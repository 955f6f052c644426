"""Finds loops: the same call with the same result, the same error, cycles, changes undone again, the same text. Pure.

What makes a repetition a loop is that nothing that could change the answer lies in between: no call that may have
changed files or the world, no other answer of a call that was made before, no word of a person. Waiting for something
is not a loop: an unchanged answer with waiting in between is counted by progress.endless_poll, and much later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workspaces.domain.found import about_of, finding, of_look, steps
from workspaces.domain.incidents import Finding, IncidentKind
from workspaces.domain.seen import ASK_TOOLS, Look, Seen, said, shown
from workspaces.domain.states import Verdict
from workspaces.domain.text import read_json
from workspaces.domain.thresholds import Thresholds

K = IncidentKind
_GAP_AFTER_ERROR = 4  # turns with other calls between two tries of what fails
_GAP = 2
_MAX_PERIOD = 6


@dataclass(frozen=True, slots=True)
class Streak:
    """The same call with the same result, newest last, nothing in between that could have changed it.

    `gaps`: other calls lay in between; `waited`: between most of them the agent waited.
    """

    looks: tuple[Look, ...]
    gaps: bool
    waited: bool
    excused: int  # right after a failure of the provider: the reply before may have been lost

    @property
    def count(self) -> int:
        return len(self.looks) - self.excused + self.excused // 3


def streaks(view: Seen) -> list[Streak]:
    """One for each call of the newest turn."""
    if not view.by_turn or not view.by_turn[-1]:
        return []
    found, done = [], set()
    for look in reversed(view.by_turn[-1]):
        if look.note or look.only_waits or look.sight in done or look.call.name in ASK_TOOLS:
            continue
        done.add(look.sight)
        found.append(_streak(view, look))
    return found


def _same(one: Look, other: Look) -> bool:
    """The same call and result; a failed one may differ in cosmetics, but an unchanged call's answer may not."""
    if one.failed and other.failed:
        if one.same == other.same:
            return one.answer == other.answer
        return one.loose == other.loose and one.loose_answer == other.loose_answer
    return one.same == other.same and one.answer == other.answer


def _streak(view: Seen, newest: Look) -> Streak:
    looks, between = [newest], list[Look]()
    all_between: list[Look] = []
    waits = gaps = 0
    max_gap = _GAP_AFTER_ERROR if newest.failed else _GAP
    waited_now = newest.waits
    for look in reversed(view.looks[: _place(view, newest)]):
        if looks[-1].stirred and look.turn < looks[-1].turn:
            break
        if looks[-1].turn - look.turn - 1 > max_gap + waits_between(view, look.turn, looks[-1].turn):
            break
        if _same(look, newest):
            if look.turn == looks[-1].turn:  # asked twice at once: the model had seen no result in between
                continue
            waits += waited_now
            gaps += bool(between)
            all_between += between
            between, waited_now = [], look.waits
            looks.append(look)
        elif look.same == newest.same or (look.failed and newest.failed and look.loose == newest.loose):
            break  # the same question had another answer
        elif look.changes or look.moved:
            break
        elif look.waits:
            waited_now = True
        elif not look.note:
            between.append(look)
    looks.reverse()
    repeated = len({look.sight for look in all_between}) < len(all_between)
    excused = sum(bool(view.turns[look.turn].provider_errors) for look in looks[1:])
    if repeated:  # what lies in between repeats as well: a cycle, or circling, not this
        looks, gaps = _without_gaps(view, looks), 0
    return Streak(tuple(looks), bool(gaps), waits * 2 >= max(1, len(looks) - 1), min(excused, len(looks) - 1))


def _place(view: Seen, look: Look) -> int:
    return next(index for index in range(len(view.looks) - 1, -1, -1) if view.looks[index] is look)


def waits_between(view: Seen, first: int, last: int) -> int:
    """Turns between two that only wait, note or talk: they make no gap."""
    return sum(all(look.only_waits or look.note for look in view.by_turn[index]) for index in range(first + 1, last))


def _without_gaps(view: Seen, looks: list[Look]) -> list[Look]:
    kept = [looks[-1]]
    for look in reversed(looks[:-1]):
        if kept[-1].turn - look.turn - 1 > waits_between(view, look.turn, kept[-1].turn):
            break
        kept.append(look)
    return kept[::-1]


def is_poll(view: Seen, streak: Streak) -> bool:
    """An unchanged answer is awaited honestly: there was waiting, or waiting is the task and this a look at its end."""
    newest = streak.looks[-1]
    if newest.changes and not newest.not_yet:
        return False
    definite_error = newest.failed and not newest.not_yet
    if streak.waited:
        return not definite_error or view.asked_to_wait
    return view.asked_to_wait and newest.brief and not definite_error


def same_call(view: Seen, limits: Thresholds) -> list[Finding]:
    """same_call_same_result, and same_error for what failed."""
    found = []
    for streak in streaks(view):
        newest = streak.looks[-1]
        if newest.call.verdict is Verdict.CORRECT or is_poll(view, streak):
            continue
        threshold = _threshold(streak, limits)
        if not threshold or streak.count < threshold:
            continue
        found.append(_same_call_finding(streak, threshold))
    return found


def _threshold(streak: Streak, limits: Thresholds) -> int:
    newest = streak.looks[-1]
    if newest.not_yet:
        return limits.impatient
    if newest.failed:
        return limits.waited_error if streak.waited else limits.same_error
    return limits.reread if streak.gaps else limits.same_result


def _same_call_finding(streak: Streak, threshold: int) -> Finding:
    newest, looks = streak.looks[-1], streak.looks
    where = steps([look.call.step for look in looks])
    cosmetic = len({look.same for look in looks}) > 1
    if newest.failed:
        between = ", with only cosmetic changes in between" if cosmetic else ""
        words = f"{shown(newest.call)} ended with the same error at {where}{between}: {said(newest)}"
    else:
        but = ", apart from times and ids," if len({look.call.result_hash for look in looks}) > 1 else ""
        words = f"{shown(newest.call)} returned the same result{but} at {where}: {said(newest)}"
    return finding(
        K.LOOP,
        "same_error" if newest.failed else "same_call_same_result",
        [of_look(look) for look in looks],
        words,
        about=about_of(newest),
        subject=f"call\n{newest.loose if newest.failed else newest.same}",
        count=len(looks),
        threshold=threshold,
    )


def same_error_other_calls(view: Seen, limits: Thresholds) -> list[Finding]:
    """Different calls of one tool that all end with one error: what fails is not the call."""
    threshold = limits.same_error_other_calls
    calls = [look for look in view.looks if not look.note]
    if not threshold or not calls or calls[-1].turn != len(view.turns) - 1:
        return []
    newest = calls[-1]
    if not newest.failed or newest.call.verdict is Verdict.CORRECT:
        return []
    run: list[Look] = []
    for look in reversed(calls):
        if look.waits and look.answer != newest.answer:
            continue
        if look.call.name != newest.call.name or not look.failed or look.answer != newest.answer:
            break
        if not run or look.turn != run[-1].turn:
            run.append(look)
    if newest.not_yet:
        threshold = limits.poll_limit if view.asked_to_wait else max(threshold, limits.impatient)
    if len(run) < threshold or len({look.loose for look in run}) == 1:
        return []
    run.reverse()
    where = steps([look.call.step for look in run])
    return [
        finding(
            K.LOOP,
            "same_error_other_calls",
            [of_look(look) for look in run],
            f"{len(run)} calls of {newest.call.name}, each another one, ended with the same error at {where}: "
            f"{said(newest)}",
            about=about_of(newest),
            subject=f"error\n{newest.call.name}\n{newest.answer}",
            count=len(run),
            threshold=threshold,
        )
    ]


def cycles(view: Seen, limits: Thresholds) -> list[Finding]:
    """The same 2 to 6 turns, with the same results, in whole rounds."""
    if not limits.cycle or not view.by_turn or not view.by_turn[-1]:
        return []
    rows = [row for row in _acting(view) if row]
    if not rows or rows[-1][-1].turn != _last_acting(view):
        return []
    sights = [tuple(look.sight for look in row) for row in rows]
    for period in range(2, _MAX_PERIOD + 1):
        rounds = rounds_of(sights, period)
        if rounds < limits.cycle or len(set(sights[-period:])) == 1:
            continue
        if _is_one_question(rows[-period:]):
            return []
        turns = rows[len(rows) - rounds * period :]
        if rounds < _rounds_needed(view, turns[-period:], limits):
            return []
        return [_cycle_finding(turns, period, rounds, limits.cycle)]
    return []


def _is_one_question(round_: Sequence[tuple[Look, ...]]) -> bool:
    """One call that changes nothing and whose answers come in turn: a contradiction, not a cycle."""
    looks = [look for row in round_ for look in row]
    return len({look.same for look in looks}) == 1 and not any(look.changes for look in looks)


def _acting(view: Seen) -> list[tuple[Look, ...]]:
    return [tuple(look for look in row if not look.note) for row in view.by_turn]


def _last_acting(view: Seen) -> int:
    return len(view.turns) - 1


def rounds_of(sights: Sequence[object], period: int) -> int:
    matching = 0
    for index in range(len(sights) - 1, period - 1, -1):
        if sights[index] != sights[index - period]:
            break
        matching += 1
    return matching // period + 1 if matching >= period else 0


def _rounds_needed(view: Seen, round_: Sequence[tuple[Look, ...]], limits: Thresholds) -> int:
    """Three rounds prove a cycle; where it waits for something, progress.endless_poll speaks, much later."""
    looks = [look for row in round_ for look in row]
    asks = [look for look in looks if not look.only_waits]
    if not asks:
        return 10_000
    waited = any(look.waits for look in looks)
    idle = not any(look.changes and not look.not_yet for look in asks)
    definite_error = any(look.failed and not look.not_yet for look in asks)
    told = view.asked_to_wait and all(look.brief for look in asks)
    if idle and (waited or told) and (not definite_error or (waited and view.asked_to_wait)):
        return 10_000
    if waited and definite_error:
        return max(limits.cycle, limits.waited_error)
    return max(limits.cycle, limits.impatient) if any(look.not_yet for look in asks) else limits.cycle


def _cycle_finding(turns: Sequence[tuple[Look, ...]], period: int, rounds: int, threshold: int) -> Finding:
    round_ = [row[0] for row in turns[-period:]]
    names = ", then ".join(shown(look.call, 50) for look in round_[:4]) + (", …" if period > 4 else "")
    evidence = [of_look(look) for row in turns for look in row]
    first, last = turns[0][0].call.step, turns[-1][-1].call.step
    members = sorted(look.loose if look.failed else look.same for look in round_)
    paths = [path for look in round_ if look.changes and not look.failed and (path := path_of(look))]
    return finding(
        K.LOOP,
        f"cycle_of_{period}",
        evidence,
        f"The same {period} steps came {rounds} times, with the same results, from step {first} to {last}: {names}. "
        f"The last one ended with: {said(round_[-1])}",
        about="+".join(sorted({look.call.name for look in round_})),
        subject=f"file\n{paths[0]}" if len(set(paths)) == 1 else "cycle\n" + "\n".join(dict.fromkeys(members)),
        count=rounds,
        threshold=threshold,
    )


def back_and_forth(view: Seen, limits: Thresholds) -> list[Finding]:
    """Changes of one file that bring it back to where it was, again and again. Tests and reads may lie in between."""
    if not limits.back_and_forth or not view.by_turn:
        return []
    newest = next((look for look in reversed(view.by_turn[-1]) if look.changes and not look.failed), None)
    if newest is None or not (path := path_of(newest)):
        return []
    changes = [look for look in view.looks if look.changes and not look.failed and path_of(look) == path]
    sights = [look.same for look in changes]
    for period in (2, 3):
        rounds = rounds_of(sights, period)
        if rounds < limits.back_and_forth or len(set(sights[-period:])) < period:
            continue
        run = changes[len(changes) - rounds * period :]
        where = steps([look.call.step for look in run])
        return [
            finding(
                K.LOOP,
                "back_and_forth",
                [of_look(look) for look in run],
                f"{path} was changed at {where} by {period} calls that come again in the same order: each round "
                f"brings it back to where it was. The newest: {shown(newest.call)}",
                about=newest.call.name,
                subject=f"file\n{path}",
                count=rounds,
                threshold=limits.back_and_forth,
            )
        ]
    return []


def path_of(look: Look) -> str:
    """The file that a call changes, where it names one."""
    try:
        values = read_json(look.call.arguments)
    except ValueError:
        return ""
    if not isinstance(values, dict):
        return ""
    for key in ("path", "file_path", "file", "filename", "target"):
        if isinstance(value := values.get(key), str):
            return value.removeprefix("./")
    return ""


def corrected(view: Seen, limits: Thresholds) -> list[Finding]:
    """Calls of one tool that the gate had to correct, step after step."""
    threshold = limits.corrected
    if not threshold:
        return []
    run: list[Look] = []
    for row in reversed(view.by_turn):
        acts = [look for look in row if not look.note]
        if not acts or any(look.call.verdict is not Verdict.CORRECT for look in acts):
            break
        if run and acts[-1].call.name != run[0].call.name:
            break
        run.append(acts[-1])
    if len(run) < threshold:
        return []
    run.reverse()
    return [
        finding(
            K.BAD_CALL,
            "corrected_again",
            [of_look(look) for look in run],
            f"The call of {run[-1].call.name} was corrected and not run at "
            f"{steps([look.call.step for look in run])}: {said(run[-1])}",
            about=run[-1].call.name,
            subject=f"corrected\n{run[-1].call.name}",
            count=len(run),
            threshold=threshold,
        )
    ]


RULES = (back_and_forth, cycles, same_call, same_error_other_calls, corrected)
