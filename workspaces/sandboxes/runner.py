"""The small shell program that runs one command in a sandbox and leaves its result in a folder. Never imports a driver.

It needs only a POSIX shell, `cat`, `mkdir`, `mkfifo`, `mv`, `rm` and `setsid`, so any base image will do, and
it reaches the sandbox through the read-only requests folder, so an image does not carry it. It is started
detached: what it knows stands in files, which is why a command survives the death of whoever asked for it.

    exec.sh CLAIMS NAME REQUEST TOKEN

`REQUEST/limits` sets `blocks` (512-byte units kept of each stream) and `end` (a mark that says where the
command's own output ends). `REQUEST/request` is sourced by the shell that becomes the command: it exports the
environment, changes the folder and sets the arguments. `REQUEST/stdin` is the input. The command runs in the
foreground of the runner, because a shell's background jobs ignore SIGINT.

Made under CLAIMS/NAME, whose `mkdir` is the claim, so that of any number of runners one goes on: `token`,
`group`, `out`, `err`, and at last `exit`.

- The kept output is limited by the file size limit of the one `cat` that writes it; a second one drains the
  rest, so that a command that prints for ever neither blocks nor fills the disk.
- The mark is written into the same pipe after the command has ended: what precedes it is complete, and a
  background child that holds the pipe open keeps nobody waiting.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence

BLOCK_BYTES = 512
MARKER = "AGENTDESK_EXEC"  # in the environment of all that a command starts: how its processes are found
END_BYTES = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

SCRIPT = r"""#!/bin/sh
umask 022
claims=$1 name=$2 request=$3 token=$4
claim=$claims/$name
mkdir "$claim" 2>/dev/null || exit 0
printf '%s' "$token" >"$claim/token.new" && mv "$claim/token.new" "$claim/token"
mkfifo "$claim/o" "$claim/e"
exec 3<>"$claim/o" 4<>"$claim/e"
exec 5<"$claim/o" 6<"$claim/e" 7>"$claim/o" 8>"$claim/e"
exec 3>&- 4>&-
rm -f "$claim/o" "$claim/e"
keep() {
    ( trap '' XFSZ; ulimit -f "$blocks"; exec cat >"$1" 2>/dev/null )
    exec cat >/dev/null
}
blocks=0 end=
. "$request/limits"
# `exec`, since a shell keeps copies of what a mere call redirects: with one of 7 or 8, `cat` would never see an end
{ exec <&5 >/dev/null 5>&- 6>&- 7>&- 8>&-; keep "$claim/out"; } &
{ exec <&6 >/dev/null 5>&- 6>&- 7>&- 8>&-; keep "$claim/err"; } &
exec 5<&- 6<&-
# in a subshell, or this shell would report a killed command in the command's own error stream
(
    export AGENTDESK_EXEC="$name"
    exec setsid /bin/sh -c 'printf %s "$$" >"$1/group"; . "$2/request"; exec "$@"' \
        sh "$claim" "$request" <"$request/stdin" >&7 2>&8 7>&- 8>&-
)
code=$?
trap '' PIPE
printf '%s' "$end" >&7
printf '%s' "$end" >&8
exec 7>&- 8>&-
printf '%s' "$code" >"$claim/exit.new" && mv "$claim/exit.new" "$claim/exit"
"""


def limits_script(limit_bytes: int, end: bytes) -> bytes:
    """The text that the runner sources."""
    blocks = -(-(limit_bytes + END_BYTES + 1) // BLOCK_BYTES)
    return b"blocks=%d end=%s\n" % (blocks, _quoted(end))


def request_script(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> bytes:
    """The text that the command's shell sources. Raises ValueError for what no process can be given (NUL bytes)."""
    folder = _quoted(to_bytes(cwd))
    lines = [b"cd %s || { echo 'the working folder cannot be entered' >&2; exit 126; }" % folder]
    lines.append(b"set -- " + b" ".join(_quoted(to_bytes(item)) for item in argv))
    for name, value in env.items():
        if not _NAME.match(name):
            raise ValueError(f"{name!r} cannot be the name of an environment variable")
        lines.append(b"export %s=%s" % (name.encode(), _quoted(to_bytes(value))))
    script = b"\n".join(lines) + b"\n"
    if b"\x00" in script:
        raise ValueError("a command cannot be given a NUL byte")
    return script


def to_bytes(text: str) -> bytes:
    """What the operating system is given for `text`; half a surrogate pair becomes a question mark."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _quoted(raw: bytes) -> bytes:
    return shlex.quote(raw.decode("latin-1")).encode("latin-1")
