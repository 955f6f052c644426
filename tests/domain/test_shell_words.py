"""What a command line is for, guessed from its words: what is not known counts as a change."""

from __future__ import annotations

import pytest

from workspaces.domain.shell_words import Kind, nature_of


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("grep 'a|b;c' x.py", Kind.READ),
        ("curl -s 'http://a/b?x=1&y=2'", Kind.READ),
        ("curl -X POST http://a", Kind.OTHER),
        ("echo x", Kind.READ),
        ("echo x >> a", Kind.OTHER),
        ("cat a 2>/dev/null | head", Kind.READ),
        ("cat a | tee b", Kind.OTHER),
        ("FOO=1 timeout 30 make test > /dev/null 2>&1", Kind.CHECK),
        ("python3 test_calc.py", Kind.CHECK),
        ("sed -n 1,5p a", Kind.READ),
        ("sed -i s/a/b/ a", Kind.OTHER),
        ("git log --oneline", Kind.READ),
        ("git commit -m x", Kind.OTHER),
        ("ls && ./unknown", Kind.OTHER),
        ("until curl -sf x; do sleep 2; done", Kind.READ),
        ("sleep 5", Kind.WAIT),
    ],
)
def test_what_a_command_is_for(command: str, kind: Kind) -> None:
    assert nature_of(command).kind is kind


def test_waiting_is_seen_alone_and_before_a_look() -> None:
    assert nature_of("sleep 5").only_sleeps
    assert nature_of("sleep 5; cat a").sleeps
    assert not nature_of("sleep 5; cat a").only_sleeps
    assert not nature_of("cat sleep").sleeps
