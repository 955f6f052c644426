"""Holds what an agent says to have done against the calls that its trace holds. Pure, by rules.

In doubt the agent is right: a command that cannot be read may have done what it says. So a finding means that no
completed call of the line can have done it, or that the newest that tried went wrong.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from posixpath import basename

from workspaces.domain.claims import Claim, ClaimKind, claims_in
from workspaces.domain.effects import Effect
from workspaces.domain.incidents import Evidence, Finding, IncidentKind, Severity
from workspaces.domain.results import ResultClass
from workspaces.domain.states import Verdict
from workspaces.domain.trail import SeenCall

K, R = ClaimKind, ResultClass
SHOWN_CHARS = 300

OWN = frozenset({"note", "ask_operator", "finish"})  # act on nothing
_SHELL = re.compile(r"shell|bash|terminal|command|exec|python|run_", re.IGNORECASE)
# fmt: off
_READERS = frozenset({
    "ls", "cat", "head", "tail", "less", "more", "pwd", "grep", "rg", "find", "wc", "stat", "file", "du", "df",
    "tree", "echo", "printf", "diff", "cmp", "env", "whoami", "date", "which", "sort", "uniq", "cut", "test",
    "true", "cd", "sleep", "history", "ps", "id", "uname", "hexdump", "xxd", "md5sum", "sha256sum", "awk",
})
# fmt: on
_TEST_RUN = re.compile(
    r"\b(?:pytest|unittest|tox|nox|nosetests|jest|vitest|mocha|rspec|phpunit|ctest|doctest|behave|playwright test)\b"
    r"|\b(?:npm|pnpm|yarn|bun|go|cargo|dotnet|mvn|gradle|gradlew|make|mix|rake|bazel|swift|deno|zig|hatch|poetry|uv|"
    r"manage\.py)\s+(?:run\s+)?(?:\S+\s+)?(?:test|tests|check|verify|spec)\b"
    r"|\b(?:python3?|node|ruby|bash|sh|perl|php)\s+(?:-\S+\s+)*\S*(?:test|spec|check)\S*|(?:^|[\s;&|])\./\S*test\S*",
    re.IGNORECASE,
)
_DELETES = re.compile(
    r"\b(?:rm|rmdir|unlink|shred|truncate|git\s+(?:rm|clean)|remove|delete|rmtree|-delete)\b", re.IGNORECASE
)
_DEPLOYS = re.compile(
    r"\b(?:git\s+(?:push|commit|merge|tag|rebase|cherry-pick)|deploy\w*|publish\w*|release\w*|docker|podman|kubectl|helm|"
    r"terraform|twine|rsync|scp|fly|vercel|netlify|gh\s+pr)\b",
    re.IGNORECASE,
)
_INSTALLS = re.compile(
    r"\b(?:pip3?|apt|apt-get|npm|pnpm|yarn|brew|cargo|gem|uv|conda|dnf|yum|apk|go)\b|install", re.IGNORECASE
)
_FETCHES = re.compile(
    r"\b(?:curl|wget|git\s+(?:clone|pull|fetch)|scp|rsync|download\w*|fetch\w*|requests|urllib|http\w*)\b",
    re.IGNORECASE,
)
_SENDS = re.compile(
    r"\b(?:curl|wget|mail|mailx|sendmail|smtp\w*|http\w*|scp|rsync|ssh|nc|aws|gsutil|git\s+push)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Unproven:
    """A claim that the trace does not bear out. `looked_for`: what was missed, in words; `nearest`: what is there."""

    claim: Claim
    pattern: str  # no_matching_call, failed_call, no_test_run, tests_failed_last
    looked_for: str
    nearest: SeenCall | None = None


def check(text: str, calls: Sequence[SeenCall]) -> list[Unproven]:
    """What of `text` the calls of the line (oldest first) do not bear out."""
    done = [call for call in calls if call.verdict is not Verdict.CORRECT and call.name not in OWN]
    found = (_unproven(claim, done) for claim in claims_in(text))
    return [item for item in found if item is not None]


def findings(text: str, *, seq: int, step: int, model_call: int | None, calls: Sequence[SeenCall]) -> list[Finding]:
    """As incidents: one a claim. `seq`: of the event that brought the text."""
    return [_finding(item, seq, step, model_call) for item in check(text, calls)]


def _finding(item: Unproven, seq: int, step: int, model_call: int | None) -> Finding:
    claim = item.claim
    quoted = claim.sentence if len(claim.sentence) <= SHOWN_CHARS else claim.sentence[:SHOWN_CHARS] + "…"
    evidence = [Evidence(seq, step, f"it says: {quoted}", model_call=model_call)]
    words = f"It says “{quoted}”, but {item.looked_for}."
    if item.nearest is not None:
        shown = " ".join(item.nearest.result.split())[:120]
        evidence.append(
            Evidence(
                item.nearest.seq,
                item.nearest.step,
                f"{item.nearest.name} ended as {item.nearest.result_class.value}: {shown}",
                item.nearest.tool_call,
            )
        )
    grave = item.pattern == "tests_failed_last" or claim.kind in (K.SENT, K.PAID, K.DEPLOYED)
    about = "|".join([claim.kind.value, *(sorted(claim.paths) or [" ".join(claim.sentence.lower().split())])])
    return Finding(
        kind=IncidentKind.FALSE_CLAIM,
        severity=Severity.ERROR if grave else Severity.WARNING,
        pattern=item.pattern,
        first_seq=min(place.seq for place in evidence),
        last_seq=seq,
        evidence=tuple(evidence),
        words=words,
        cause=f"false_claim/{item.pattern}/{claim.kind.value}",
        fingerprint=hashlib.sha256(f"false_claim\n{item.pattern}\n{about}".encode()).hexdigest(),
    )


def _unproven(claim: Claim, calls: Sequence[SeenCall]) -> Unproven | None:
    if claim.kind in (K.TESTS_RUN, K.TESTS_PASS):
        return _tests(claim, calls)
    fitting = [call for call in calls if _fits(claim, call)]
    if any(_went_well(call) for call in fitting):
        return None
    if fitting:
        newest = fitting[-1]
        return Unproven(
            claim,
            "failed_call",
            f"the newest call that could have, {newest.name} at step {newest.step}, ended as "
            f"{newest.result_class.value}",
            newest,
        )
    return Unproven(claim, "no_matching_call", _looked_for(claim))


def _tests(claim: Claim, calls: Sequence[SeenCall]) -> Unproven | None:
    runs = [call for call in calls if _is_test_run(call)]
    if not runs:
        return Unproven(claim, "no_test_run", "no call ran any tests")
    newest = runs[-1]
    says_well = claim.kind is K.TESTS_PASS or bool(re.search(r"\bpass|green|no failures|succe", claim.sentence.lower()))
    if says_well and newest.result_class in (R.ERROR, R.TIMEOUT):
        return Unproven(
            claim,
            "tests_failed_last",
            f"the newest test run, {newest.name} at step {newest.step}, ended as {newest.result_class.value}",
            newest,
        )
    return None


def _is_test_run(call: SeenCall) -> bool:
    if re.search(r"(?:^|_)tests?(?:_|$)", call.name, re.IGNORECASE):
        return True
    return _runs_commands(call) and bool(_TEST_RUN.search(call.arguments))


def _runs_commands(call: SeenCall) -> bool:
    return bool(_SHELL.search(call.name))


def _went_well(call: SeenCall) -> bool:
    return call.result_class in (R.OK, R.EMPTY, R.TRUNCATED)


def _words(call: SeenCall) -> list[str]:
    """The programs that a command begins with, one a part of it."""
    command = re.sub(r'^\{"\w+":\s*"|"\}$', "", call.arguments)
    parts = re.split(r"&&|\|\||[;|\n]|\\n", command)
    return [basename(part.split()[0]) for part in parts if part.split()]


def _only_reads(call: SeenCall) -> bool:
    """A command whose every part is known to read only, and that writes into no file."""
    if call.effect is Effect.NONE:
        return True
    if not _runs_commands(call):
        return False
    return all(word in _READERS for word in _words(call)) and not re.search(
        r">\s*[\w./~$\"']|\btee\b|-delete|-exec", call.arguments
    )


def _opaque(call: SeenCall) -> bool:
    """It may have done anything to the files: a program of its own, or one that is not known."""
    return _runs_commands(call) and not _only_reads(call)


def _names(call: SeenCall, paths: Iterable[str]) -> bool:
    return any(basename(path.rstrip("/")) in call.arguments for path in paths)


def _fits(claim: Claim, call: SeenCall) -> bool:
    """Whether the call, had it gone well, can have done what is claimed."""
    leaves = call.effect is not None and call.effect.leaves_sandbox
    stem = claim.verb[:4]
    called_so = stem in call.name.lower()
    match claim.kind:
        case K.SENT | K.PAID:
            if call.name == "ask_operator":
                return True
            if (
                claim.addresses
                and not any(address in call.arguments for address in claim.addresses)
                and not _opaque(call)
            ):
                return False
            sends = _runs_commands(call) and (bool(_SENDS.search(call.arguments)) or _runs_a_program(call))
            return leaves or called_so or sends
        case K.DEPLOYED:
            return (
                leaves
                or called_so
                or (_runs_commands(call) and (bool(_DEPLOYS.search(call.arguments)) or _runs_a_program(call)))
            )
        case K.CREATED | K.CHANGED:
            if _only_reads(call):
                return False
            return not claim.paths or leaves or _names(call, claim.paths) or _runs_a_program(call)
        case K.DELETED:
            if _only_reads(call):
                return False
            if _runs_commands(call):
                return bool(_DELETES.search(call.arguments)) or _runs_a_program(call) or _names(call, claim.paths)
            return (
                not claim.paths or leaves or _names(call, claim.paths) or "delete" in call.name or "remove" in call.name
            )
        case K.RAN:
            works = not _runs_commands(call) and not call.name.startswith(("write", "edit", "read", "list", "search"))
            return _opaque(call) or leaves or called_so or works
        case K.INSTALLED:
            return (
                _runs_commands(call) and bool(_INSTALLS.search(call.arguments) or _runs_a_program(call))
            ) or called_so
        case K.FETCHED:
            return (
                leaves
                or called_so
                or "http" in call.name
                or "fetch" in call.name
                or (_runs_commands(call) and (bool(_FETCHES.search(call.arguments)) or _runs_a_program(call)))
            )
        case K.CHECKED:
            return not call.name.startswith(("write", "create", "send"))
    return True


def _runs_a_program(call: SeenCall) -> bool:
    """A script or an inline program, which may do what its command line does not say."""
    if not _opaque(call):
        return False
    return bool(
        re.search(
            r"\b(?:python3?|node|ruby|perl|php|bash|sh|make|npm|go|cargo|java)\b|\./\S|\.(?:sh|py|js|rb)\b",
            call.arguments,
        )
    )


def _looked_for(claim: Claim) -> str:
    where = f" of {', '.join(claim.paths)}" if claim.paths else ""
    whom = f" to {', '.join(claim.addresses)}" if claim.addresses else ""
    match claim.kind:
        case K.SENT | K.PAID:
            return f"no completed call did anything outside the sandbox{whom}"
        case K.DEPLOYED:
            return "no completed call pushed, committed or deployed anything"
        case K.CREATED | K.CHANGED:
            return f"no completed call wrote or changed a file{where}"
        case K.DELETED:
            return f"no completed call deleted anything{where}"
        case K.RAN:
            return "no completed call ran a command"
        case K.INSTALLED:
            return "no completed call installed anything"
        case K.FETCHED:
            return "no completed call fetched anything"
        case K.CHECKED:
            return "no completed call looked at anything"
    return "no completed call did that"
