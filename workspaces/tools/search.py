"""search_files: a regular expression in the workspace's files, by grep in the sandbox.

In the sandbox, because an expression can take for ever: there it costs the workspace's own CPU and ends at
its timeout, while the worker matches nothing itself.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

from workspaces.domain.classify import Ended, of_search
from workspaces.domain.effects import Effect
from workspaces.domain.results import ResultClass
from workspaces.domain.text import clean_text, clip
from workspaces.sandboxes.base import ExecResult, SandboxError
from workspaces.tools.base import ToolContext, ToolResult, ToolSpec
from workspaces.tools.files import NOT_ENTERED, PATH
from workspaces.tools.output import failure, fitting, refused, result
from workspaces.tools.paths import relative
from workspaces.tools.shell import as_ended

TIMEOUT_S = 30.0
MAX_SHOWN = 200
LINE_CHARS = 300
MAX_PATTERN_CHARS = 2_000


class SearchFiles:
    spec = ToolSpec(
        name="search_files",
        description=(
            "Search the text files of the workspace for a regular expression (Perl style), line by line. "
            "path is a folder or file to search in, glob the files (*.py, src/**/*.js). "
            "Gives path:line: text."
        ),
        parameters={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS},
                "path": PATH,
                "glob": {"type": "string", "minLength": 1, "maxLength": 500},
                "ignore_case": {"type": "boolean"},
            },
            "required": ["pattern"],
            "additionalProperties": False,
        },
        effect=Effect.NONE,
        timeout_s=TIMEOUT_S,
    )

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        pattern, glob = str(arguments["pattern"]), str(arguments.get("glob") or "")
        if clean_text(pattern + glob) != pattern + glob:
            return failure("the pattern or glob holds a NUL character or half of a surrogate pair")
        if "\n" in pattern:
            return failure("the pattern holds a line end: lines are searched one by one")
        try:
            path = relative(str(arguments.get("path") or ""))
            ignore_case = bool(arguments.get("ignore_case"))
            ended = self._grep(context, "-P", pattern, path, glob, ignore_case)
            if ended.exit_code == 2 and b"-P" in ended.stderr:  # a grep built without Perl's expressions
                ended = self._grep(context, "-E", pattern, path, glob, ignore_case)
        except SandboxError as error:
            return refused(error)
        if ended.exit_code == 2 and not ended.stdout:
            return failure(_grep_words(ended.stderr, pattern))
        return _found(context, ended, glob)

    def _grep(
        self, context: ToolContext, dialect: str, pattern: str, path: str, glob: str, ignore_case: bool
    ) -> ExecResult:
        argv = ["grep", "-rnIH", "--null", dialect]
        if ignore_case:
            argv.append("-i")
        argv += [f"--exclude-dir={name}" for name in sorted(NOT_ENTERED) if name not in path.split("/")]
        if glob:
            argv.append(f"--include={glob.rpartition('/')[2]}")
        argv += ["-e", pattern, "--", f"./{path}" if path else "."]
        return context.sandbox.exec(
            argv,
            key=f"{context.key}{dialect}",
            env={"LC_ALL": "C.UTF-8"},
            timeout_s=TIMEOUT_S,
            interrupt=context.interrupt,
        )


def _found(context: ToolContext, ended: ExecResult, glob: str) -> ToolResult:
    matches: list[tuple[str, str, str]] = []
    for line in ended.stdout.split(b"\n"):
        name, separator, rest = line.partition(b"\x00")
        number, colon, text = rest.partition(b":")
        if separator and colon and number.isdigit():
            path = name.decode("utf-8", "replace").removeprefix("./")
            if not glob or _fits(path, glob):
                matches.append((path, number.decode(), text.decode("utf-8", "replace").rstrip("\r")))
    result_class, why = of_search(as_ended(ended, TIMEOUT_S))
    if result_class is ResultClass.OK and not matches:
        result_class, why = of_search(Ended(1))
    if result_class is ResultClass.TRUNCATED:
        why = "there are more matches than are kept: search for something narrower"
    files = len({path for path, _, _ in matches})
    lines = [f"{path}:{number}: {clip(text, LINE_CHARS)}" for path, number, text in matches[:MAX_SHOWN]]
    shown = fitting(lines, context.output_limit_chars - 300)
    head = f"{len(matches)} lines in {files} files" if matches else ""
    if len(matches) > len(shown):
        head += f", shown are the first {len(shown)}; narrow the search with path, glob or pattern"
    data = {"matches": len(matches), "files": files, "duration_s": round(ended.duration_s, 3)}
    return result(context, "\n".join([head, *shown] if head else shown), result_class, why, data, may_write=False)


def _fits(path: str, glob: str) -> bool:
    """Whether a glob means this path: without a slash its name, with one the whole of it (** any folders)."""
    glob = glob.removeprefix("./").removeprefix("/workspace/")
    if "/" not in glob:
        return fnmatch.fnmatchcase(path.rpartition("/")[2], glob)
    return any(fnmatch.fnmatchcase(path, form) for form in (glob, glob.replace("**/", "")))


def _grep_words(stderr: bytes, pattern: str) -> str:
    words = clean_text(stderr.decode("utf-8", "replace")).strip().splitlines()
    reason = clip(words[0].removeprefix("grep: "), 300) if words else "it gave no reason"
    return f"the search for {clip(pattern, 100)} failed: {reason}"
