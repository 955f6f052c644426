"""Each detector's rule, at its edge: it speaks at the threshold, not before, and not for what only looks like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.bench.detectors import prefixes
from tests.corpus.traces import Trace, trail_of
from workspaces.domain.detectors import find
from workspaces.domain.found import severity_of, steps
from workspaces.domain.incidents import Finding, IncidentKind, Severity
from workspaces.domain.storms import Happening, storms
from workspaces.domain.thresholds import NAMES, Thresholds, problems, thresholds_of

FAILS = ["shell", "npm test", "!exit code 1\nFAIL sum: expected 3"]
READS = ["read_file", "a.txt", "one"]
K = IncidentKind


def trail(*turns: Any, **fields: Any) -> Any:
    return trail_of({"turns": list(turns), **fields})


def found(*turns: Any, limits: Thresholds | None = None, **fields: Any) -> list[str]:
    return [finding.pattern for finding in find(trail(*turns, **fields), limits or Thresholds())]


def the(*turns: Any, **fields: Any) -> Finding:
    (finding,) = find(trail(*turns, **fields))
    return finding


def others(count: int, name: str = "other") -> list[Any]:
    return [["read_file", f"{name}/{number}.txt", f"{name} number {number}"] for number in range(count)]


# loops


def test_the_same_error_three_times_is_a_loop_and_its_words_quote_it() -> None:
    assert found(FAILS, FAILS) == []
    finding = the(READS, FAILS, FAILS, FAILS)
    assert (finding.pattern, finding.kind, finding.count) == ("same_error", K.LOOP, 3)
    assert finding.words == (
        'shell("npm test") ended with the same error at steps 2, 3 and 4: exit code 1 FAIL sum: expected 3'
    )
    assert [place.step for place in finding.evidence] == [2, 3, 4]
    assert finding.cause == "loop/same_error/shell/exit 1"


@pytest.mark.parametrize(
    ("result", "quoted"),
    [
        ("[result: error - there is no a.csv]\nlist_files shows what is there.", "there is no a.csv; list_files shows"),
        ("[result: error - exit code 127]\n[standard error]\nbash: make: not found", "exit code 127; bash: make: not"),
        ("[result: error - HTTP 404]\nHTTP 404\n{}", "HTTP 404 {}"),
        ("[result: error - refused]", "refused"),
    ],
)
def test_words_quote_the_reason_first(result: str, quoted: str) -> None:
    fails = ["read_file", {"path": "a.csv"}, result, "error"]
    assert f"at steps 1, 2 and 3: {quoted}" in the(fails, fails, fails).words


def test_a_result_that_differs_only_in_its_time_is_said_to_differ() -> None:
    stamps = [["read_file", "stamp", f"at 1796100{number}"] for number in range(100, 104)]
    assert "returned the same result, apart from times and ids, at steps 1 to 4" in the(*stamps).words
    assert "returned the same result at" in the(READS, READS, READS, READS).words


def test_the_same_result_four_times_is_a_loop() -> None:
    assert found(READS, READS, READS) == []
    assert found(READS, READS, READS, READS) == ["same_call_same_result"]


def test_a_change_in_between_begins_the_count_anew() -> None:
    edit = ["edit_file", ["sum.js", "a", "b"], "edited"]
    assert found(FAILS, FAILS, edit, FAILS) == []
    assert found(FAILS, FAILS, edit, FAILS, FAILS, FAILS) == ["same_error"]


def test_an_edit_that_failed_changes_nothing() -> None:
    edit = ["edit_file", ["sum.js", "a", "b"], "!old is not in sum.js"]
    assert found(FAILS, edit, FAILS, FAILS) == ["same_error"]


def test_a_person_who_speaks_begins_the_count_anew() -> None:
    spoken = {"operator": True, "calls": [FAILS]}
    assert found(FAILS, FAILS, spoken) == []
    assert found(FAILS, FAILS, spoken, FAILS, FAILS) == ["same_error"]


def test_another_answer_begins_the_count_anew() -> None:
    assert found(FAILS, FAILS, ["shell", "npm test", "!exit code 1\nFAIL product"], FAILS) != ["same_error"]


def test_another_answer_of_another_call_says_that_the_world_has_moved() -> None:
    log = [["read_file", "log", text] for text in ("one", "two", "three")]
    assert found(FAILS, log[0], FAILS, ["read_file", "map", "m"], FAILS) == ["same_error"]
    assert found(FAILS, log[0], FAILS, log[1], FAILS) == []


def test_a_repeat_after_a_failure_of_the_provider_counts_a_third() -> None:
    after = {"provider_errors": ["timeout"], "calls": [READS]}
    assert found(READS, READS, after, READS) == []
    assert found(READS, READS, after, READS, READS) == ["same_call_same_result"]
    assert found(READS, *[after] * 8) == []
    assert found(READS, *[after] * 9) == ["same_call_same_result"]


def test_a_disk_that_somebody_else_changed_begins_the_count_anew() -> None:
    made = trail(READS, READS, READS, READS)
    turns = [made.turns[0], made.turns[1], *[_on_disk(turn, "other") for turn in made.turns[2:]]]
    assert find(made) != []
    assert find(type(made)(tuple(turns))) == []


def _on_disk(turn: Any, disk: str) -> Any:
    return replace(turn, disk=disk)


@pytest.mark.parametrize(
    "variant",
    ["npm  test", " npm test", "npm test;", "NPM test", "npm 'test'", 'npm "test"'],
)
def test_cosmetic_changes_of_a_failing_call_are_the_same_call(variant: str) -> None:
    assert found(FAILS, ["shell", variant, FAILS[2]], FAILS) == ["same_error"]


def test_another_number_or_temporary_name_is_no_other_call_when_it_fails() -> None:
    waits = [["shell", f"curl --max-time {n}0 http://x", "!exit code 6\nno such host: x"] for n in (1, 2, 3)]
    assert found(*waits) == ["same_error"]
    clones = [["shell", f"git clone x /tmp/try{n}", f"!exit code 128\nInto /tmp/try{n}: not found"] for n in (1, 2, 3)]
    assert found(*clones) == ["same_error"]
    builds = [["shell", "docker build .", f"!exit code 1\n#7 1.{n}4 ERROR: no foo"] for n in (1, 2, 3)]
    assert found(*builds) == ["same_error"]


def test_another_flag_is_another_call() -> None:
    calls = [["shell", f"npm test {flag}", FAILS[2]] for flag in ("--runInBand", "--ci", "--silent")]
    assert found(*calls) == []


def test_one_error_of_five_different_calls_is_a_loop() -> None:
    calls = [["shell", f"{tool} install x", "!exit code 1\nno network here"] for tool in ["pip", "npm", "gem", "cargo"]]
    assert found(*calls) == []
    assert found(*calls, ["shell", "apk add x", "!exit code 1\nno network here"]) == ["same_error_other_calls"]


def test_times_durations_and_ids_do_not_make_a_result_another_one() -> None:
    results = [
        f"at 2026-05-01T10:00:0{n}Z request_id=r{n}5 pid 12{n} took {n}.5 s at 0x7f00ab{n}c in /tmp/x{n}"
        for n in range(4)
    ]
    assert found(*[["web_search", "x", result] for result in results]) == ["same_call_same_result"]


@pytest.mark.parametrize("result", ["{} items", "{}0 %", "sha256 ab12cd{}", "{}0 s left", "row {}"])
def test_counters_percentages_hashes_and_time_left_are_news(result: str) -> None:
    assert found(*[["web_search", "x", result.format(n)] for n in range(1, 8)]) == []


def test_what_was_clipped_is_compared_by_its_hash() -> None:
    made = trail(READS, READS, READS, READS)
    turns = [replace(turn, calls=(replace(turn.calls[0], result_hash=f"{turn.step:064x}"),)) for turn in made.turns]
    assert find(type(made)(tuple(turns))) == []


def test_a_sub_command_of_an_editor_is_no_command_line() -> None:
    view = ["str_replace_editor", {"command": "date", "path": "a"}, "one", "ok", "external"]
    change = ["str_replace_editor", {"command": "date", "path": "b"}, "two", "ok", "external"]
    assert found(FAILS, change, FAILS, view, FAILS) == []  # an unknown tool outside the sandbox: it may change things
    assert found(FAILS, ["shell", "date", "two"], FAILS, ["shell", "date", "two"], FAILS) == []
    assert found(FAILS, ["shell", "date", "two"], FAILS, ["shell", "ls", "a"], FAILS) == ["same_error"]


def test_arguments_that_were_clipped_are_compared_by_their_hash() -> None:
    made = trail(*[["write_file", ["a", "b"], "written"]] * 4)
    clipped = [replace(turn.calls[0], arguments='{"content":"the same beginn') for turn in made.turns]
    other = [replace(call, call_hash=f"{call.step:064x}") for call in clipped]
    for calls, expected in ((clipped, 1), (other, 0)):
        turns = [replace(turn, calls=(call,)) for turn, call in zip(made.turns, calls, strict=True)]
        assert len(find(type(made)(tuple(turns)))) == expected


def test_equal_calls_in_one_reply_are_one() -> None:
    assert found({"calls": [READS] * 6}) == []
    assert found(*[{"calls": [READS] * 2}] * 3) == []


def test_a_second_look_with_work_in_between_is_honest() -> None:
    with_gaps = [call for number in range(5) for call in (READS, *others(1, f"n{number}"))]
    assert found(*with_gaps[:-1]) == []
    assert found(*with_gaps, READS) == ["same_call_same_result"]


def test_a_failing_call_between_other_reads_is_still_a_loop() -> None:
    assert found(FAILS, *others(2), FAILS, *others(3, "more"), FAILS) == ["same_error"]
    assert found(FAILS, *others(6), FAILS, *others(6, "more"), FAILS) == []


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6])
def test_three_rounds_of_a_cycle_are_a_loop(period: int) -> None:
    round_ = others(period)
    assert found(*round_ * 3) == [f"cycle_of_{period}"]
    assert found(*(round_ * 3)[:-1]) == []
    assert found(*round_ * 3, ["read_file", "new.txt", "new"]) == []


def test_rounds_with_different_results_are_no_cycle() -> None:
    turns = [
        call
        for n in range(6)
        for call in (["browser_click", "#next", "clicked", "ok", "external"], ["browser_read", "main", f"page {n}"])
    ]
    assert found(*turns) == []


def test_a_longer_or_noisy_round_is_circling() -> None:
    assert found(*others(8) * 3) == ["circling"]
    assert found(*others(8) * 2) == []


def test_looking_at_several_jobs_in_any_order_is_no_circling_where_waiting_is_the_task() -> None:
    a, b, c = others(3)
    turns = [a, b, c, b, a, c, a, c, b, c, b, a, b, a, c, a]
    assert found(*turns) == ["circling"]
    assert found(*turns, instruction="Wait for the three jobs.") == []


def test_a_file_changed_back_and_forth_is_a_loop_in_its_second_round() -> None:
    there, back = ["edit_file", ["a", "1", "2"], "edited"], ["edit_file", ["a", "2", "1"], "edited"]
    assert found(there, FAILS, back, READS, there) == []
    assert found(there, FAILS, back, READS, there, FAILS, back) == ["back_and_forth"]
    assert found(there, back, there, ["edit_file", ["a", "2", "3"], "edited"]) == []


# texts


def test_the_same_words_three_times() -> None:
    say = [{"text": f"Number {n}: I will look at the parser and then fix the error in it."} for n in range(3)]
    assert found(*say[:2]) == []
    assert found(*say) == ["same_text"]


def test_nearly_the_same_words() -> None:
    text = "I will open the file that holds the parser, look for the function that fails, and then mend it at once"
    say = [{"text": text}, {"text": f"{text}!"}, {"text": text.replace("at once", "right away")}]
    assert found(*say) == ["same_text"]
    assert found(*say[:2], {"text": "The parser is not where the fault lies: its input was cut before it came in"}) == [
        "no_action"
    ]


def test_different_words_three_times_are_paralysis() -> None:
    say = [{"text": "A queue would do."}, {"text": "Tables can be looked at."}, {"text": "Both have merits."}]
    assert found(*say[:2]) == []
    finding = the(*say)
    assert (finding.kind, finding.pattern) == (K.PARALYSIS, "no_action")


def test_a_cut_reply_is_not_paralysis() -> None:
    say = [{"text": text, "finish": "length"} for text in ("One begins", "Two begins otherwise", "Three is new")]
    assert found(*say) == []


def test_a_chant() -> None:
    assert found({"text": "I must check the file. " * 8}) == ["chanting"]
    assert found({"text": "I must check the file. " * 7}) == []
    others_said = "".join(f"And the {chr(97 + n) * 4} is another matter. " for n in range(20))
    assert found({"text": "I must check the file. " * 8 + others_said}) == []
    assert found({"text": "```\n" + "print('check the file').\n" * 20 + "```"}) == []


def test_the_same_question_to_a_person() -> None:
    ask = {"operator": True, "calls": [["ask_operator", "Which database shall I use?", "Postgres."]]}
    again = {"operator": True, "calls": [["ask_operator", "Which database should I use?", "Postgres!"]]}
    assert found(ask, again) == []
    assert found(ask, again, ask) == ["same_question"]
    work = ["write_file", ["a", "b"], "written"]
    assert found(ask, work, again, work, ask) == []


def test_a_call_corrected_three_times() -> None:
    bad = ["write_file", {"path": "a"}, "content is missing", "error", "workspace", "correct"]
    other = ["write_file", {"content": "a"}, "path is missing", "error", "workspace", "correct"]
    assert found(bad, other) == []
    finding = the(bad, other, bad)
    assert (finding.kind, finding.pattern) == (K.BAD_CALL, "corrected_again")
    assert found(bad, bad, READS, bad) == []


# paralysis


def test_notes_without_work() -> None:
    notes = [["note", ["plan", f"thought {n}"], "noted"] for n in range(6)]
    assert found(*notes[:5]) == []
    assert found(*notes) == ["plan_only"]
    assert found(*notes[:5], READS, *notes[:5]) == []


def test_reading_for_ever_while_the_exit_condition_names_a_file() -> None:
    reads = others(30)
    assert found(*reads, exit_condition="`report.md` is written.") == ["exit_out_of_reach"]
    assert found(*reads[1:], exit_condition="`report.md` is written.") == []
    write = ["write_file", ["part.txt", "a part"], "written"]
    assert found(*reads[:20], write, *reads[20:], *others(15, "more"), exit_condition="`report.md` is written.") == []
    assert found(*reads, exit_condition="All is well.") == []
    assert found(*reads, ["read_file", "out/report.md", "x"], exit_condition="`report.md` is written.") == []


# progress


def test_an_unchanged_poll_is_honest_for_24_looks() -> None:
    look = ["shell", "sleep 30; ./job status", "status: pending"]
    assert found(*[look] * 24) == []
    finding = the(*[look] * 25)
    assert (finding.kind, finding.pattern, finding.count) == (K.NO_PROGRESS, "endless_poll", 25)
    assert "25 times, waiting in between" in finding.words
    told = the(*[["http_request", ["GET", "https://s.test"], "ok"]] * 25, instruction="Monitor https://s.test for me.")
    assert "25 times, as the instruction asks for" in told.words


def test_waiting_as_a_step_of_its_own_counts_too() -> None:
    sleep, look = ["shell", "sleep 30", ""], ["http_request", ["GET", "https://j.test/1"], '{"status": "pending"}']
    assert found(*[sleep, look] * 24) == []
    assert found(*[sleep, look] * 25) == ["endless_poll"]


def test_a_round_of_three_is_polled_as_long_as_the_window_shows_it() -> None:
    round_ = [["shell", "sleep 60", ""], ["get_job", {"id": 1}, "working"], ["get_log", {"id": 1}, "step 4"]]
    assert found(*round_ * 17) == []
    assert found(*round_ * 18) == ["endless_poll"]


def test_not_yet_without_waiting_is_a_loop_at_eight() -> None:
    look = ["http_request", ["GET", "https://j.test/1"], '{"status": "pending"}']
    assert found(*[look] * 7) == []
    assert found(*[look] * 8) == ["same_call_same_result"]
    assert found(*[look] * 8, instruction="Poll the job until it is done.") == []


def test_an_instruction_to_wait_does_not_excuse_reading_a_long_text_again() -> None:
    long = ["read_file", "manual.md", "a long manual about many things " * 20]
    assert found(*[long] * 4, instruction="Wait for the build, then read the manual.") == ["same_call_same_result"]
    assert found(*[READS] * 4, instruction="Wait for the build, then read the manual.") == []
    assert found(*[READS] * 4, instruction="Build the waiting room's page.") == ["same_call_same_result"]


def test_waiting_does_not_heal_a_definite_error() -> None:
    wrong = ["shell", "sleep 5; python a.py", "!exit code 1\nSyntaxError: invalid syntax"]
    assert found(*[wrong] * 7) == []
    assert found(*[wrong] * 8) == ["same_error"]


def test_a_test_that_fails_with_a_timeout_is_a_definite_error() -> None:
    timed_out = ["shell", "npm test", "!exit code 1\nexpected 200, got 503: timed out"]
    assert found(*[timed_out] * 3) == ["same_error"]
    assert found(*[["shell", "curl -sf x", "!exit code 22\nHTTP 503"]] * 7) == []


def test_a_failing_test_is_no_poll_though_the_instruction_speaks_of_waiting() -> None:
    assert found(FAILS, FAILS, FAILS, instruction="Wait for the server, then make the tests pass.") == ["same_error"]


def test_only_sleeping() -> None:
    sleep = ["shell", "sleep 30", ""]
    assert found(*[sleep] * 24) == []
    assert found(*[sleep] * 25) == ["only_waiting"]


def test_searches_that_find_nothing() -> None:
    searches = [["search_files", f"word{letter}", "no line matched", "empty"] for letter in "abcdefgh"]
    assert found(*searches[:7]) == []
    assert found(*searches) == ["empty_again"]
    assert found(*searches[:7], ["search_files", "wordh", "a.py:1: wordh"]) == []


def test_a_grep_that_finds_nothing_is_no_error() -> None:
    greps = [["shell", f"grep -rn {word} .", "!exit code 1"] for word in ("one", "two", "three", "four", "five")]
    assert found(*greps) == []


def test_every_call_fails_in_its_own_way() -> None:
    calls = [
        ["shell", f"{chr(97 + n)}{chr(98 + n)}x", f"!exit code 127\n{chr(97 + n)}{chr(98 + n)}x?"] for n in range(12)
    ]
    assert found(*calls[:11]) == []
    assert found(*calls) == ["nothing_works"]


def test_what_may_pass_is_not_counted_among_what_never_works() -> None:
    calls = [
        ["shell", f"curl {chr(97 + n) * 3}", f"!exit code 7\n{chr(97 + n) * 3}: connection refused"] for n in range(15)
    ]
    assert found(*calls) == []


def test_waiting_for_something_that_is_not_there_yet_is_no_vain_search() -> None:
    looks = [["shell", f"sleep 9; dig +short {chr(97 + n)}.test", "", "empty"] for n in range(10)]
    assert found(*looks) == []
    assert found(*[[look[0], look[1][9:], *look[2:]] for look in looks]) == ["empty_again"]


def test_steps_that_bring_nothing_new() -> None:
    calls = [["list_files", f"dir{chr(97 + n)}", "nothing here"] for n in range(13)]
    assert found(*calls[:12]) == []  # the first answer was news
    assert found(*calls) == ["no_news"]
    note = ["note", ["attempts", "six folders"], "noted"]
    assert found(note, *calls[:6], note, *calls[6:]) == []


# contradiction


def test_answers_that_change_back_and_forth() -> None:
    ten, twelve = (["http_request", ["GET", "https://a.test/p"], f'{{"price": {n}}}'] for n in (10, 12))
    assert found(ten, twelve) == []
    finding = the(ten, twelve, ten)
    assert (finding.kind, finding.pattern) == (K.CONTRADICTION, "contradictory_results")
    assert '{"price": 10}' in finding.words
    assert '{"price": 12}' in finding.words


def test_an_answer_that_a_change_explains_is_no_contradiction() -> None:
    red, green = ["shell", "pytest", "!exit code 1\n1 failed"], ["shell", "pytest", "1 passed"]
    edit = ["edit_file", ["a", "b", "c"], "edited"]
    assert found(red, green, red) == ["contradictory_results"]
    assert found(red, edit, green, edit, red) == []


def test_a_value_that_wanders_is_no_contradiction() -> None:
    assert found(*[["quote", {"symbol": "A"}, f"at {n}"] for n in (10, 11, 12, 13, 10)]) == []


def test_states_on_their_way_are_no_contradiction() -> None:
    look = ["http_request", ["GET", "https://a.test/j"]]
    assert found(*[[*look, f'{{"status": "{state}"}}'] for state in ("queued", "running", "queued")]) == []


# storms


def happenings(count: int, every_s: float, kind: str = "rate_limit", source: str = "pool 1") -> list[Happening]:
    return [Happening(n * every_s, kind, n + 1, 1, source) for n in range(count)]


def test_retries_on_an_exhausted_pool_are_a_storm_by_the_minute() -> None:
    assert storms(happenings(20, 4), Thresholds()) == []
    assert storms(happenings(19, 1), Thresholds()) == []
    (finding,) = storms(happenings(20, 1), Thresholds())
    assert (finding.kind, finding.pattern, finding.count) == (K.STORM, "retry_storm", 20)
    assert "pool 1" in finding.words


def test_two_pools_are_counted_apart_and_forks_beside_them() -> None:
    both = [*happenings(15, 1), *happenings(15, 1, source="pool 2")]
    assert storms(both, Thresholds()) == []
    assert [f.pattern for f in storms(happenings(25, 0.1, "fork", "task 1"), Thresholds())] == ["fan_out"]


# all together


def test_one_trouble_is_one_finding() -> None:
    assert len(find(trail(*[FAILS] * 15))) == 1
    assert len(find(trail(*[FAILS, READS] * 10))) == 1


def test_a_finding_keeps_its_fingerprint_while_it_grows_and_its_severity_rises() -> None:
    trace = Trace("", "", "", trail(*[FAILS] * 80))
    findings = [finding for _, prefix in prefixes(trace) for finding in find(prefix)]
    assert len(findings) == 78
    assert len({finding.fingerprint for finding in findings}) == 1
    assert findings[0].severity is Severity.WARNING
    assert findings[-1].severity is Severity.CRITICAL
    ranks = [finding.severity.rank for finding in findings]
    assert ranks == sorted(ranks)


def test_a_cycle_keeps_its_fingerprint_wherever_it_is_met() -> None:
    round_ = others(3)
    at = [find(trail(*round_ * 3, *round_[:extra])) for extra in range(3)]
    assert len({findings[0].fingerprint for findings in at}) == 1


def test_what_has_ended_is_no_finding() -> None:
    assert found(*[FAILS] * 5, READS) == []


def test_a_profile_turns_a_rule_off_or_makes_it_stricter() -> None:
    assert found(*[FAILS] * 2, limits=thresholds_of({"same_error": 2})) == ["same_error"]
    off = Thresholds(**dict.fromkeys(NAMES, 0))
    for turns in ([FAILS] * 50, [READS, FAILS] * 20, [{"text": "x"}] * 20, others(60)):
        assert found(*turns, limits=off, exit_condition="`x.md`") == []


def test_thresholds_that_cannot_be_used_are_named() -> None:
    assert problems({"same_error": 3, "cycle": 0}) == []
    assert problems([]) == ["The detectors must be an object of names and numbers."]
    (unknown,) = problems({"loops": 3})
    assert "no threshold 'loops'" in unknown
    assert "same_error" in unknown
    assert problems({"same_error": True}) == ["same_error must be a whole number, 0 turns it off."]
    assert problems({"same_error": 1}) == ["same_error must be 0 (off) or from 2 to 10000, not 1."]
    with pytest.raises(ValueError, match="from 2 to"):
        thresholds_of({"cycle": 1})


def test_steps_are_named_in_few_words() -> None:
    assert steps([4]) == "step 4"
    assert steps([4, 7, 9]) == "steps 4, 7 and 9"
    assert steps(list(range(1, 20))) == "steps 1 to 19"
    assert steps(list(range(1, 40, 2))) == "steps 1, 3, 5 … 37 and 39"
    assert [severity_of(n, 3) for n in (3, 6, 12)] == [Severity.WARNING, Severity.ERROR, Severity.CRITICAL]
