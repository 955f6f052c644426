"""`make bench-detectors`: precision and recall of the detectors on the labelled corpus, beside the rules of others.

Each trace is played step by step through `detectors.find`, as the engine does it. A finding counts when its kind is
expected, not before the trouble has begun and not after the step by which the label asks for it. The others say only
"stuck": they are measured on whether a trace with a trouble is spoken of at all, however late, and ours on time.
Bar: no false alarm on legitimate polling, recall of 0.95 at least, and more of both than
each of the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.bench.baselines import BASELINES, Baseline
from tests.corpus.traces import Trace, corpus
from workspaces.domain.detectors import find
from workspaces.domain.incidents import Finding
from workspaces.domain.storms import storms
from workspaces.domain.thresholds import Thresholds
from workspaces.domain.trail import WINDOW, Trail

DEFAULTS = Thresholds()
SCOPE = frozenset({"loop"})  # what the others are for: their recall is told for these labels as well


@dataclass
class Outcome:
    """What our detectors said of one trace: kind to the first step; `early`: before its trouble had begun."""

    trace: Trace
    first: dict[str, int] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    early: set[str] = field(default_factory=set)

    @property
    def hits(self) -> set[str]:
        return {kind for kind, by in self.trace.expect.items() if self.first.get(kind, by + 1) <= by}

    @property
    def false_alarms(self) -> set[str]:
        return {
            kind for kind in self.first if kind not in self.trace.expect and kind not in self.trace.also
        } | self.early

    @property
    def found(self) -> bool:
        return bool(self.hits) if self.trace.any_of else self.hits == set(self.trace.expect)


def prefixes(trace: Trace) -> Iterable[tuple[int, Trail]]:
    """The window after each step."""
    turns = trace.trail.turns
    for end in range(1, len(turns) + 1):
        window = turns[max(0, end - WINDOW) : end]
        yield end, Trail(window, trace.trail.instruction, trace.trail.exit_condition)


def play(trace: Trace, limits: Thresholds = DEFAULTS) -> Outcome:
    outcome = Outcome(trace)
    for step, trail in prefixes(trace):
        for finding in find(trail, limits):
            _note(outcome, finding, step)
    for end in range(1, len(trace.happenings) + 1):
        for finding in storms(trace.happenings[:end], limits):
            _note(outcome, finding, 1)
    return outcome


def _note(outcome: Outcome, finding: Finding, step: int) -> None:
    kind = finding.kind.value
    if step < outcome.trace.onset:
        outcome.early.add(kind)
    elif kind not in outcome.first:
        outcome.first[kind] = step
        outcome.patterns[kind] = finding.pattern


@dataclass
class Score:
    right: int = 0
    wrong: int = 0
    expected: int = 0
    on_time: int = 0

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.on_time / self.expected if self.expected else 1.0


def by_kind(outcomes: Sequence[Outcome]) -> dict[str, Score]:
    scores: dict[str, Score] = defaultdict(Score)
    for outcome in outcomes:
        trace = outcome.trace
        for kind in outcome.false_alarms:
            scores[kind].wrong += 1
        for kind in trace.expect:
            if kind in outcome.first:
                scores[kind].right += 1
            if trace.any_of and outcome.hits and kind not in outcome.hits:
                continue  # another of its names was found
            scores[kind].expected += 1
            scores[kind].on_time += kind in outcome.hits
    return dict(scores)


def over_traces(outcomes: Sequence[Outcome]) -> Score:
    """A trace is one question: is something wrong? What may be called either way is not asked."""
    score = Score()
    for outcome in outcomes:
        if outcome.trace.also and not outcome.trace.expect:
            continue
        trouble, alarm = bool(outcome.trace.expect), bool(outcome.false_alarms)
        score.expected += trouble
        score.on_time += trouble and outcome.found
        score.right += trouble and bool(outcome.first) and not alarm
        score.wrong += alarm
    return score


def first_word(baseline: Baseline, trace: Trace) -> int | None:
    return next((step for step, trail in prefixes(trace) if baseline(trail)), None)


def of_baseline(traces: Sequence[Trace], firsts: dict[Trace, int | None]) -> Score:
    score = Score()
    for trace in traces:
        if trace.also and not trace.expect:
            continue
        first, trouble = firsts[trace], bool(trace.expect)
        score.expected += trouble
        spoke = first is not None
        early = first is not None and first < trace.onset
        score.on_time += trouble and spoke and not early
        score.right += trouble and spoke and not early
        score.wrong += spoke and (not trouble or early)
    return score


def cost_ms() -> tuple[float, float]:
    """Of `find` over a full window: (as in a worker that has seen the turns before, on first sight), medians."""
    from workspaces.domain import sameness, seen, shell_words

    long = [trace.trail for trace in corpus() if len(trace.trail.turns) >= 45]
    warm, cold = [], []
    for trail in long:
        window = Trail(trail.turns[-WINDOW:], trail.instruction, trail.exit_condition)
        for cache in (seen._of_arguments, seen._of_result, sameness._pieces, shell_words.nature_of):
            cache.cache_clear()
        for times in (cold, warm, warm, warm):
            started = time.process_time()
            find(window)
            times.append((time.process_time() - started) * 1000)
    return statistics.median(warm), statistics.median(cold)


def measure() -> dict[str, object]:
    """Every figure, and whether the bar is met. Also called by the tests."""
    traces = corpus()
    outcomes = [play(trace) for trace in traces]
    with_turns = [trace for trace in traces if trace.trail.turns]
    ours = over_traces([outcome for outcome in outcomes if outcome.trace.trail.turns])
    loops = [o for o in outcomes if o.trace.trail.turns and (not o.trace.expect or set(o.trace.expect) & SCOPE)]
    ours_loops = over_traces(loops)
    polling = [outcome for outcome in outcomes if outcome.trace.polling and not outcome.trace.expect]
    alarms = sum(bool(outcome.false_alarms) for outcome in polling)
    firsts = {name: {t: first_word(rule, t) for t in with_turns} for name, rule in BASELINES.items()}
    others = {}
    for name, first in firsts.items():
        whole, narrow = of_baseline(with_turns, first), of_baseline([o.trace for o in loops], first)
        others[name] = {
            **_numbers(whole),
            "loops_precision": round(narrow.precision, 3),
            "loops_recall": round(narrow.recall, 3),
            "alarms_on_polling": sum(first[o.trace] is not None for o in polling if o.trace.trail.turns),
        }
    warm, cold = cost_ms()
    tuned = over_traces([o for o in outcomes if not o.trace.held_out])
    unseen = over_traces([o for o in outcomes if o.trace.held_out])
    everything = over_traces(outcomes)
    figures: dict[str, object] = {
        "traces": len(traces),
        "held_out": sum(trace.held_out for trace in traces),
        "ours": {
            **_numbers(ours),
            "loops_precision": round(ours_loops.precision, 3),
            "loops_recall": round(ours_loops.recall, 3),
            "alarms_on_polling": alarms,
        },
        "ours_with_storms": _numbers(everything),
        "tuned_on": _numbers(tuned),
        "unseen": _numbers(unseen),
        "others": others,
        "polling_traces": len(polling),
        "polling_precision": round(1 - alarms / len(polling), 3) if polling else 0.0,
        "find_ms": round(warm, 3),
        "find_first_sight_ms": round(cold, 3),
    }
    figures["holds"] = (
        len(traces) >= 120
        and alarms == 0
        and everything.recall >= 0.95
        and ours.recall >= 0.95
        and all(
            ours.precision > other["precision"]
            and ours.recall > other["recall"]
            and ours_loops.precision > other["loops_precision"]
            and ours_loops.recall > other["loops_recall"]
            for other in others.values()
        )
    )
    _print(outcomes, figures, others, firsts)
    return figures


def _numbers(score: Score) -> dict[str, float]:
    return {"precision": round(score.precision, 3), "recall": round(score.recall, 3)}


def _print(
    outcomes: Sequence[Outcome],
    figures: dict[str, object],
    others: dict[str, dict[str, float]],
    firsts: dict[str, dict[Trace, int | None]],
) -> None:
    print(f"{figures['traces']} traces, {figures['held_out']} of them held out while the detectors were made\n")
    print(f"{'detector':<16}{'precision':>10}{'recall':>8}{'expected':>10}{'false':>7}")
    for kind, score in sorted(by_kind(outcomes).items()):
        print(f"{kind:<16}{score.precision:>10.3f}{score.recall:>8.3f}{score.expected:>10}{score.wrong:>7}")
    print(f"\n{'a trace is in trouble':<24}{'precision':>10}{'recall':>8}{'loops only':>18}{'alarms on polling':>20}")
    ours = figures["ours"]
    assert isinstance(ours, dict)
    for name, row in {"ours (on time)": ours, **others}.items():
        print(
            f"{name:<24}{row['precision']:>10.3f}{row['recall']:>8.3f}"
            f"{row['loops_precision']:>10.3f}{row['loops_recall']:>8.3f}"
            f"{row['alarms_on_polling']:>14} of {figures['polling_traces']}"
        )
    for name in ("tuned_on", "unseen"):
        row = figures[name]
        assert isinstance(row, dict)
        what = "ours, tuned on" if name == "tuned_on" else "ours, held out"
        print(f"{what:<24}{row['precision']:>10.3f}{row['recall']:>8.3f}")
    _print_families(outcomes, firsts)
    for outcome in outcomes:
        if not outcome.found or outcome.false_alarms:
            early = f", too early: {', '.join(outcome.early)}" if outcome.early else ""
            print(f"  off: {outcome.trace}: {outcome.first} {outcome.patterns}, not {outcome.trace.expect}{early}")
    print(f"\nfind over a full window: {figures['find_ms']} ms, {figures['find_first_sight_ms']} ms on first sight")


def _print_families(outcomes: Sequence[Outcome], firsts: dict[str, dict[Trace, int | None]]) -> None:
    names = list(firsts)
    print(
        f"\n{'family: found / in trouble, false alarms':<44}{'ours':>9}{'step':>6}" + "".join(f"{n:>19}" for n in names)
    )
    families: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        families[outcome.trace.family].append(outcome)
    for family, rows in families.items():
        trouble = [row for row in rows if row.trace.expect]
        steps = [min(row.first.values()) for row in trouble if row.first]
        cell = f"{sum(r.found for r in trouble)}/{len(trouble)}, {sum(bool(r.false_alarms) for r in rows)}"
        line = f"{family:<44}{cell:>9}{round(statistics.median(steps)) if steps else '-':>6}"
        for first in firsts.values():
            known = [row for row in rows if row.trace in first]
            hits = [first[r.trace] for r in known if r.trace.expect and first[r.trace] is not None]
            wrong = sum(first[r.trace] is not None for r in known if not r.trace.expect)
            at = f" @{round(statistics.median(hits))}" if hits else ""
            line += f"{f'{len(hits)}/{sum(bool(r.trace.expect) for r in known)}, {wrong}{at}':>19}"
        print(line)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    figures = measure()
    print(json.dumps(figures))
    return 0 if figures["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
