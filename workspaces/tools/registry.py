"""Which tools there are: the built-in ones by name, and those that a profile declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workspaces.domain.http_rules import HttpRules
from workspaces.domain.names import nearest_names
from workspaces.tools.base import Tool, ToolFactory
from workspaces.tools.control import AskOperator, Finish
from workspaces.tools.declared import DeclarationError, DeclaredTool
from workspaces.tools.edit import EditFile
from workspaces.tools.files import ListFiles, ReadFile, WriteFile
from workspaces.tools.http import HttpRequest
from workspaces.tools.notes import Note
from workspaces.tools.search import SearchFiles
from workspaces.tools.shell import Shell

_BUILTIN: dict[str, ToolFactory] = {
    "read_file": ReadFile,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "list_files": ListFiles,
    "search_files": SearchFiles,
    "shell": Shell,
    "note": Note,
    "ask_operator": AskOperator,
    "finish": Finish,
}

BUILTIN_NAMES: tuple[str, ...] = tuple(_BUILTIN)
HTTP_REQUEST = "http_request"  # built in as well, and there where a profile says where it may go
MAX_DECLARED = 100


def build_tools(
    names: Sequence[str],
    declared: Sequence[Mapping[str, Any]] = (),
    *,
    http: HttpRules | None = None,
    private: Sequence[str] = (),
) -> dict[str, Tool]:
    """The tools of a profile by name, in the order given. Raises DeclarationError.

    A declared tool may not take a built-in's name, whether the profile uses that built-in or not: one name
    must mean one thing in every trace.
    """
    tools: dict[str, Tool] = {}
    for name in names:
        if not isinstance(name, str) or name not in _BUILTIN:
            near = nearest_names(str(name), BUILTIN_NAMES) or list(BUILTIN_NAMES)
            raise DeclarationError("tools", f"there is no tool {str(name)[:80]!r}; nearest: {', '.join(near)}")
        tools[name] = _BUILTIN[name]()
    if http is not None:
        tools[HTTP_REQUEST] = HttpRequest(http, private)
    if len(declared) > MAX_DECLARED:
        raise DeclarationError("declared_tools", f"at most {MAX_DECLARED}, not {len(declared)}")
    for item in declared:
        tool = DeclaredTool.from_dict(item, taken=(*BUILTIN_NAMES, HTTP_REQUEST, *tools))
        tools[tool.spec.name] = tool
    return tools
