"""Finds, in what an agent writes, the sentences in which it says to have done something. Pure, by rules, English.

A claim is a finished act of the writer: "I have sent the invoice", "Created hello.txt", "All tests pass". Plans,
questions, negations, conditions, hedges, quotations and what somebody else did are none. Whether the trace holds such
an act is the matter of claim_evidence.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

MOST_CHARS = 20_000  # of a text that is looked at
MOST_SENTENCE_CHARS = 600  # looked at as one: some patterns take its square of time
MOST_CLAIMS = 40


class ClaimKind(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    SENT = "sent"
    PAID = "paid"  # money, orders, bookings
    TESTS_RUN = "tests_run"
    TESTS_PASS = "tests_pass"  # noqa: S105 - no password
    RAN = "ran"
    DEPLOYED = "deployed"
    CHECKED = "checked"
    INSTALLED = "installed"
    FETCHED = "fetched"


K = ClaimKind

VERBS: dict[ClaimKind, str] = {
    K.CREATED: "created wrote written saved generated added produced copied made recorded stored exported",
    K.CHANGED: "updated edited modified changed fixed replaced refactored renamed moved appended configured rewrote "
    "rewritten adjusted corrected patched resolved implemented restored scheduled rotated converted formatted reverted "
    "migrated improved extended merged-in enabled disabled",
    K.DELETED: "deleted removed erased dropped cleaned purged cleared",
    K.SENT: "sent emailed e-mailed mailed messaged notified informed posted replied forwarded submitted delivered "
    "uploaded shared contacted texted tweeted invited",
    K.PAID: "paid refunded charged purchased bought ordered booked reserved transferred cancelled canceled placed "
    "subscribed unsubscribed invoiced",
    K.RAN: "ran executed run restarted started launched triggered invoked",
    K.DEPLOYED: "deployed released published pushed merged committed shipped tagged",
    K.CHECKED: "verified checked confirmed validated tested reviewed inspected double-checked searched read analysed "
    "analyzed examined counted compared",
    K.INSTALLED: "installed upgraded downgraded",
    K.FETCHED: "downloaded fetched cloned retrieved pulled scraped crawled",
}
_KIND_OF = {verb: kind for kind, verbs in VERBS.items() for verb in verbs.split()}
_VERB = "|".join(sorted(map(re.escape, _KIND_OF), key=len, reverse=True))
# the base form of these is also their past: at a sentence's beginning they are an order
_ALSO_ORDERS = frozenset({"read", "run"})
# said of a state by "is": what a thing is by nature ("is configured by") is none of these
_STATE = "fixed|deployed|merged|sent|paid|deleted|created|updated|committed|pushed|published|completed"
_ADVERBS = r"(?:\s+(?:now|already|also|just|then|both|all|\w+ly))*"

_MINE = re.compile(rf"\b(?:i|we)(?:\s+have|\s+had|'ve|'d)?{_ADVERBS}\s+({_VERB})\b")
_SET_UP = re.compile(r"\b(?:i|we)(?:\s+have|'ve)?\s+set up\b")
_FIRST = re.compile(rf"^\W*(?:(?:then|also|finally|both|have|been|was|were|\w+ly)\s+)*({_VERB})\b")
_PASSIVE = re.compile(rf"\b(?:(?:has|have|had){_ADVERBS}\s+been|was|were){_ADVERBS}\s+({_VERB})\b")
_STANDS = re.compile(rf"\b(?:is|are)(?:\s+(?:now|all|already|successfully))*\s+({_STATE})\b")
_HEADLINE = re.compile(
    rf"^\W*(?!the\b|a\b|an\b|you\b|he\b|she\b|they\b|it\b)[\w./`'-]+(?:\s+[\w./`'-]+){{0,3}}?\s+({_VERB})"
    r"(?=\s*(?:$|[.!,;)]|to\b|in\b|as\b|with\b|from\b|successfully\b|at\b))"
)
_COMPLETED = re.compile(
    r"\b(?:i|we)(?:\s+have|'ve)?(?:\s+\w+ly)*\s+(?:completed|made|issued)\s+(?:the|a)\s+(?:payment|refund|order|booking|purchase)\b"
)

_TESTS = r"(?:tests?|test suites?|test cases?|specs?|suite)"
_TESTS_PASS = re.compile(
    rf"\b{_TESTS}\b[^.;:]{{0,160}}?\b(?:pass|passes|passed|passing|succeed|succeeds|succeeded|green)\b"
    rf"|\b(?:all|every)\s+\d*\s*{_TESTS}\s+(?:ok|fine)\b"
)
_TEST_OBJECT = re.compile(
    rf"^[^.;:,]{{0,160}}?\b"
    rf"(?:{_TESTS}|pytest|unittest|tox|jest|vitest|ctest|rspec|phpunit|go test|cargo test|npm test)\b"
)

_NOT_BEFORE = re.compile(
    r"\b(?:not|never|no|none|nothing|nobody|neither|nor|without|unable|cannot|failed to|fails to|refused to|could|"
    r"will|would|should|shall|can|may|might|must|going to|about to|want(?:s|ed)? to|needs?(?: to)?|have to|has to|"
    r"had to|plan(?:s|ned)?|let me|let's|try|tried|trying|attempted|to be|be|instead of|if|whether|unless|until|when|"
    r"once|before|after|assuming|provided|in case|probably|possibly|perhaps|maybe|likely|presumably|apparently|"
    r"seems?|seemed|appears?|think|believe|guess|assume|suppose|unclear|unsure|example|e\.g|please|asked|says?|said|"
    r"told)\b|n't\b|'ll\b"
)
_NOTHING_AFTER = re.compile(r"^\s+(?:no|nothing|none|neither)\b(?!\s+(?:errors?|failures?|problems?))")
_BY_ANOTHER = re.compile(r"\bby\s+(?!e-?mail\b|mail\b|phone\b|post\b|me\b|us\b|hand\b|\w+ing\b|\d)")
_REPORTED = re.compile(
    r"\b(?:according to|says?|said|states that|stated|reads|claims? that|told me|asked me|if i|as if|as though)\b"
)
_CONDITION = re.compile(r"^\W*(?:if|once|unless|when|whenever|assuming|provided|suppose|to\s+\w+)\b")
_OTHERS = re.compile(
    r"^\W*(?:the|a|an|this|that|these|those|your|their|his|her|our|my|you|he|she|they|it|who)\b|^\W*[a-z]\w+\s+(?!to\b)"
)

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTE_LINE = re.compile(r"^[ \t]*>.*$", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»")
_CODE = re.compile(r"`[^`\n]*`")
_SENTENCE = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)|\n+")
_CLAUSE = re.compile(r",?\s+(?:and|but|however|while|or|yet)\s+|[,;:]\s+|\s+[-–—]\s+")
_PATH = re.compile(
    r"(?<![\w@/.:-])(?:[\w.-]*/)*[\w-][\w.-]*\.[A-Za-z]\w{0,7}(?![\w@/])|(?<![\w:/])/(?:[\w.-]+/)*[\w.-]+"
)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


@dataclass(frozen=True, slots=True)
class Claim:
    """`sentence` as it was written, `verb` in lower case, `paths` and `addresses` that the claim names."""

    kind: ClaimKind
    sentence: str
    verb: str
    paths: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def claims_in(text: str) -> list[Claim]:
    """Every claim of a text, in order, each sentence at most once a kind."""
    text = text[:MOST_CHARS].replace("\u2019", "'")
    masked = text
    for pattern in (_FENCE, _QUOTE_LINE, _QUOTED):
        masked = pattern.sub(_blank, masked)
    found: list[Claim] = []
    for start, end in _pieces(masked, _SENTENCE):
        mark = masked[end : end + 1]
        if mark == "?":
            continue
        for at in range(start, end, MOST_SENTENCE_CHARS):
            until = min(end, at + MOST_SENTENCE_CHARS)
            found += _of_sentence(text[at:until], masked[at:until])
        if len(found) >= MOST_CLAIMS:
            break
    return found[:MOST_CLAIMS]


def _blank(found: re.Match[str]) -> str:
    """As long as what it stands for, so that places stay; several lines still end a sentence."""
    whole = found[0]
    return "\n" + " " * (len(whole) - 1) if "\n" in whole else " " * len(whole)


def _pieces(text: str, separator: re.Pattern[str]) -> list[tuple[int, int]]:
    """The places between separators."""
    places, at = [], 0
    for found in separator.finditer(text):
        places.append((at, found.start()))
        at = found.end()
    places.append((at, len(text)))
    return [(start, end) for start, end in places if text[start:end].strip()]


def _of_sentence(written: str, masked: str) -> list[Claim]:
    # names in code and paths are no words of the sentence
    words = _CODE.sub(lambda found: "`" + "x" * (len(found[0]) - 2) + "`", masked).lower()
    if _REPORTED.search(words) or _CONDITION.match(words):
        return []
    hits: list[tuple[ClaimKind, str, int, int]] = []  # kind, verb, clause's place
    writer_speaks = True  # whether a clause that begins with a verb has the writer as its subject
    barred = False  # a plan or negation that reaches over "or"
    for start, end in _pieces(words, _CLAUSE):
        clause = words[start:end]
        if not re.search(r"\bor$", words[:start].rstrip()):
            barred = False
        hit = _of_clause(clause, written[start:end].lower(), writer_speaks)
        if hit is None and _NOT_BEFORE.search(clause):
            barred = True
        if hit is not None and not barred:
            hits.append((*hit, start, end))
        if re.search(r"\b(?:i|we|i've|we've)\b", clause):
            writer_speaks = True
        elif hit is None and _OTHERS.match(clause):
            writer_speaks = False
    return _claims(written, hits)


def _claims(written: str, hits: list[tuple[ClaimKind, str, int, int]]) -> list[Claim]:
    claims: list[Claim] = []
    sentence = " ".join(written.split()).strip(" -*")
    for at, (kind, verb, start, _) in enumerate(hits):
        begin = 0 if at == 0 else start
        until = hits[at + 1][2] if at + 1 < len(hits) else len(written)
        part = written[begin:until]
        if all(claim.kind is not kind for claim in claims) or _PATH.search(part):
            claims.append(
                Claim(
                    kind=kind,
                    sentence=sentence,
                    verb=verb,
                    paths=tuple(dict.fromkeys(_paths(part))),
                    addresses=tuple(dict.fromkeys(_ADDRESS.findall(part))),
                )
            )
    return claims


def _paths(part: str) -> list[str]:
    without = _ADDRESS.sub(" ", re.sub(r"\w+://\S+", " ", part))
    return [path.rstrip(".") for path in _PATH.findall(without) if not re.fullmatch(r"v?[\d.]+|e\.g|i\.e|etc", path)]


def _of_clause(clause: str, written: str, writer_speaks: bool) -> tuple[ClaimKind, str] | None:
    """What the clause claims. `written`: with the names in code."""
    passing = _TESTS_PASS.search(written)
    if passing and not _NOT_BEFORE.search(clause[: passing.end()]) and "fail" not in clause:
        return K.TESTS_PASS, "pass"
    if writer_speaks and re.match(r"^\W*(?:they|it|all(?:\s+\d+)?|everything)\s+(?:now\s+)?pass(?:ed|es)?\b", clause):
        return K.TESTS_PASS, "pass"
    set_up = _SET_UP.search(clause)
    if set_up and not _NOT_BEFORE.search(clause[: set_up.start()]):
        return K.CHANGED, "set up"
    done = _COMPLETED.search(clause)
    if done and not _NOT_BEFORE.search(clause[: done.start()]):
        return K.PAID, "completed"
    for pattern in (_MINE, _PASSIVE, _STANDS, _FIRST, _HEADLINE):
        found = pattern.search(clause)
        if found is None or (pattern is _FIRST and not _may_begin(clause, found[1], writer_speaks)):
            continue
        if _NOT_BEFORE.search(clause[: found.start(1)]) or _NOTHING_AFTER.match(clause[found.end(1) :]):
            continue
        if pattern is not _MINE and _BY_ANOTHER.search(clause[found.end(1) :]):
            continue
        return _kind(found[1], written, found.start(1), found.end(1)), found[1]
    return None


def _may_begin(clause: str, verb: str, writer_speaks: bool) -> bool:
    return writer_speaks and (verb not in _ALSO_ORDERS or bool(re.match(r"^\W*(?:was|were|have|been)\b", clause)))


def _kind(verb: str, written: str, start: int, end: int) -> ClaimKind:
    kind = _KIND_OF.get(verb, K.CHANGED)
    if kind is K.RAN and (_TEST_OBJECT.match(written[end:]) or re.search(rf"\b{_TESTS}\b", written[:start])):
        return K.TESTS_RUN
    return kind
