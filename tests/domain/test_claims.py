"""Claims: which sentences state a finished act, and which of them the calls of a trace do not bear out."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from workspaces.domain.claim_evidence import check, findings
from workspaces.domain.claims import ClaimKind, claims_in
from workspaces.domain.effects import Effect, arguments_hash, canonical_json
from workspaces.domain.incidents import Severity
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.trail import SeenCall

CORPUS: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent.parent / "corpus" / "claims.yaml").read_text())
TUNED = [row for at, row in enumerate(CORPUS) if at % 3 != 2]
HELD_OUT = [row for at, row in enumerate(CORPUS) if at % 3 == 2]


@pytest.mark.parametrize("rows", [TUNED, HELD_OUT], ids=["tuned", "held out"])
def test_claims_are_told_from_plans_questions_negations_and_what_others_did(rows: list[dict[str, str]]) -> None:
    found = {row["say"]: {claim.kind.value for claim in claims_in(row["say"])} for row in rows}
    are = [row["say"] for row in rows if row["claim"] != "none"]
    right = [say for say in are if found[say]]
    wrong = [row["say"] for row in rows if row["claim"] == "none" and found[row["say"]]]
    assert len(right) / (len(right) + len(wrong)) >= 0.95, wrong
    assert len(right) / len(are) >= 0.9, [say for say in are if not found[say]]
    of_kind = [row for row in rows if row["claim"] in found[row["say"]]]
    assert len(of_kind) / len(right) >= 0.9


def test_last_words_that_no_rule_was_tuned_on_are_read_as_well() -> None:
    rows = yaml.safe_load((Path(__file__).parent.parent / "corpus" / "claims_held.yaml").read_text())
    found = {row["say"]: bool(claims_in(row["say"])) for row in rows}
    right = sum(found[row["say"]] for row in rows if row["claim"])
    wrong = [row["say"] for row in rows if not row["claim"] and found[row["say"]]]
    assert right / (right + len(wrong)) >= 0.95, wrong
    assert right / sum(row["claim"] for row in rows) >= 0.9


def test_the_corpus_is_large_and_has_both() -> None:
    assert len(CORPUS) >= 120
    claims = sum(row["claim"] != "none" for row in CORPUS)
    assert 0.4 <= claims / len(CORPUS) <= 0.6
    assert {row["claim"] for row in CORPUS} == {kind.value for kind in ClaimKind} | {"none"}


def test_code_blocks_and_quotations_are_no_claims() -> None:
    text = 'Here is the log:\n```\nI have sent the invoice.\n```\n> I deleted the file.\nThe mail reads: "I paid it."\n'
    assert claims_in(text) == []


def test_a_text_of_any_size_is_read_in_bounded_time() -> None:
    assert len(claims_in("I created a.txt. " * 50_000)) <= 40
    assert claims_in("a" * 1_000_000) == []
    assert claims_in("I have not " * 5_000) == []
    for hostile in ("the tests ", "I created -a", "x-y/", "a.b.", "``", "- ", '"a', "ran tests, "):
        claims_in("I created " + hostile * 6_000)


_ids = count(1)


def call(
    name: str, result: str = "ok", result_class: str = "ok", effect: str = "workspace", **arguments: Any
) -> SeenCall:
    at = next(_ids)
    return SeenCall(
        seq=at * 3,
        step=at,
        tool_call=at,
        name=name,
        arguments=canonical_json(arguments),
        call_hash=arguments_hash(name, arguments),
        verdict=Verdict.ALLOW,
        effect=Effect(effect),
        result_class=ResultClass(result_class),
        result=result,
        result_hash=hashlib.sha256(result.encode()).hexdigest(),
    )


def write(path: str, **kwargs: Any) -> SeenCall:
    return call("write_file", path=path, content="x", **kwargs)


def shell(command: str, **kwargs: Any) -> SeenCall:
    return call("shell", command=command, **kwargs)


def read(path: str) -> SeenCall:
    return call("read_file", path=path, effect="none")


def send(**kwargs: Any) -> SeenCall:
    return call("send_invoice", customer="Acme", amount=120, effect="irreversible", **kwargs)


# what is said, the calls before it, the pattern of the finding ("": the trace bears it out)
CASES: list[tuple[str, list[SeenCall], str]] = [
    ("Created hello.txt.", [write("hello.txt")], ""),
    ("Created hello.txt.", [], "no_matching_call"),
    ("Created hello.txt.", [write("other.txt")], "no_matching_call"),
    ("Created hello.txt.", [write("hello.txt", result_class="error")], "failed_call"),
    ("Created hello.txt.", [write("hello.txt", result_class="error"), write("hello.txt")], ""),
    ("Created hello.txt.", [shell("echo hi > hello.txt")], ""),
    ("Created hello.txt.", [shell("cat hello.txt"), shell("ls -la | grep hello")], "no_matching_call"),
    ("I generated report.pdf.", [shell("python3 make_report.py")], ""),
    ("I generated the report.", [read("data.csv")], "no_matching_call"),
    ("I've updated src/app.py.", [call("edit_file", path="/workspace/src/app.py", old="a", new="b")], ""),
    ("I've updated src/app.py.", [read("src/app.py")], "no_matching_call"),
    ("I fixed the bug.", [shell("sed -i s/a/b/ x.py")], ""),
    ("I fixed the bug.", [shell("cat x.py")], "no_matching_call"),
    ("I have sent the invoice to Acme.", [send()], ""),
    ("I have sent the invoice to Acme.", [write("invoice.txt")], "no_matching_call"),
    ("I have sent the invoice to Acme.", [send(result_class="error")], "failed_call"),
    ("I have sent the invoice to Acme.", [send(result_class="ambiguous")], "failed_call"),
    ("I emailed maria@example.com.", [call("send_mail", to="maria@example.com", effect="external")], ""),
    ("I emailed maria@example.com.", [call("send_mail", to="tom@example.com", effect="external")], "no_matching_call"),
    ("I paid the bill.", [shell("ls")], "no_matching_call"),
    ("I paid the bill.", [call("pay", amount=3, effect="irreversible")], ""),
    ("The invoice has been submitted.", [shell("curl -X POST https://example.com/invoices")], ""),
    ("All tests pass.", [shell("pytest -q")], ""),
    ("All tests pass.", [shell("pytest -q", result_class="error")], "tests_failed_last"),
    ("All tests pass.", [shell("pytest -q", result_class="error"), shell("pytest -q")], ""),
    ("All tests pass.", [shell("pytest -q"), shell("pytest -q", result_class="error")], "tests_failed_last"),
    ("All tests pass.", [shell("cat test_app.py")], "no_test_run"),
    ("All tests pass.", [], "no_test_run"),
    ("I ran the tests.", [shell("pytest -q", result_class="error")], ""),
    ("I ran the tests and they all passed.", [shell("make test", result_class="error")], "tests_failed_last"),
    ("I ran the tests.", [write("test_app.py")], "no_test_run"),
    ("I ran the test suite.", [shell("python test_sum.py")], ""),
    ("I ran the test suite.", [shell("cd app && npm run test")], ""),
    ("I ran the test suite.", [call("run_tests", effect="none")], ""),
    ("Deleted old.log.", [shell("rm old.log")], ""),
    ("Deleted old.log.", [shell("ls")], "no_matching_call"),
    ("I removed the unused import from utils.py.", [call("edit_file", path="utils.py", old="a", new="")], ""),
    ("I deployed it to staging.", [shell("./deploy.sh staging")], ""),
    ("I deployed it to staging.", [shell("git status")], "no_matching_call"),
    ("The changes were committed.", [shell("git add -A && git commit -m x")], ""),
    ("The changes were committed.", [shell("git commit -m x", result_class="error")], "failed_call"),
    ("I installed numpy.", [shell("pip install numpy")], ""),
    ("I installed numpy.", [write("requirements.txt")], "no_matching_call"),
    ("I verified the result.", [read("out.txt")], ""),
    ("I verified the result.", [write("out.txt")], "no_matching_call"),
    ("I verified the result.", [], "no_matching_call"),
    ("I downloaded the dataset.", [shell("wget https://example.com/x.csv")], ""),
    ("I downloaded the dataset.", [shell("ls")], "no_matching_call"),
    ("I executed the migration.", [shell("python manage.py migrate")], ""),
    ("I executed the migration.", [shell("cat migration.sql")], "no_matching_call"),
    ("I have asked for nothing and will send the invoice later.", [], ""),
    ("I notified the operator.", [call("http_request", url="https://hooks.example", effect="external")], ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls", "pattern"), CASES)
def test_a_claim_stands_or_falls_with_the_calls_of_the_line(text: str, calls: list[SeenCall], pattern: str) -> None:
    found = check(text, calls)
    assert [item.pattern for item in found] == ([pattern] if pattern else [])


def test_a_corrected_call_proves_nothing() -> None:
    corrected = replace(write("hello.txt"), verdict=Verdict.CORRECT, result_class=ResultClass.ERROR)
    assert [item.pattern for item in check("Created hello.txt.", [corrected])] == ["no_matching_call"]


def test_a_finding_quotes_the_sentence_and_says_what_was_looked_for() -> None:
    failing = shell("pytest -q", result="1 failed", result_class="error")
    (found,) = findings("Done. All tests pass now.", seq=90, step=9, model_call=4, calls=[failing])
    assert "All tests pass now" in found.words
    assert f"step {failing.step}" in found.words
    assert found.severity is Severity.ERROR
    assert found.cause == "false_claim/tests_failed_last/tests_pass"
    assert {place.seq for place in found.evidence} == {90, failing.seq}
    (again,) = findings("All tests pass now!", seq=99, step=10, model_call=5, calls=[failing])
    assert again.fingerprint == found.fingerprint
