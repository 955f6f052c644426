"""Runs a program that dies with its parent: `leash.py PARENT SIGNAL USER PROGRAM [ARGUMENT …]`.

Run as a file by a bare interpreter, so that nothing happens between fork and exec in a process that may have
threads. Gives the program a session of its own (a terminal's Ctrl-C does not reach it) and has the kernel
send it SIGNAL when PARENT ends in whatever way. USER is a uid to become, or `-`.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, signal, user, *program = sys.argv[1:]
    os.setsid()
    if user != "-":
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    if sys.platform == "linux":  # elsewhere a killed parent is found out by the next start
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before we asked
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606


main()
