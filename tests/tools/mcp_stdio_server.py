"""A server of the Model Context Protocol over stdio in plain Python, written to be run in a sandbox without packages.

It reads what it is to offer from the JSON file `mcp.json` in its folder each time it starts: {"tools": [definition …],
"hang": bool, "die_in": "between" | "list" | "call", "flood": bool, "page": int}. A tool does what its name says.
Every call is appended to `calls.txt`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from typing import Any

TINY_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(*parts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": part} for part in parts], **more}


def called(name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    with open("calls.txt", "a") as file:
        file.write(json.dumps({"name": name, "arguments": arguments, "meta": meta}) + "\n")
    if name == "picture":
        return {"content": [{"type": "image", "data": TINY_PNG, "mimeType": "image/png"}]}
    if name == "nothing":
        return {"content": []}
    if name == "fails":
        return text("no such customer", isError=True)
    if name == "numbers":
        return {"content": [], "structuredContent": {"sum": 3}}
    if name == "deep":
        return text("[" * 5_000, structuredContent={"sum": 3})
    if name == "leak":
        token = base64.b64encode((os.environ["TOKEN"] * 2).encode()).decode()
        return {"content": [{"type": "image", "data": token, "mimeType": "image/png"}]}
    if name == "secret":
        return text(f"the token is {os.environ.get('TOKEN')}")
    if name == "slow":
        time.sleep(3600)
    return text(f"{name} was given {json.dumps(arguments, sort_keys=True)}")


def main() -> None:
    with open("mcp.json") as file:
        told = json.load(file)
    for line in sys.stdin:
        said = json.loads(line)
        method, params = said.get("method"), said.get("params") or {}
        if "id" not in said:
            continue
        if told.get("hang"):
            time.sleep(3600)
        answer: dict[str, Any]
        if method == "initialize":
            server = {"name": "tests", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
            answer = {"result": result}
        elif method == "tools/list":
            if told.get("die_in") == "list":
                print("I die", file=sys.stderr)
                sys.exit(3)
            while told.get("flood"):
                note = {
                    "jsonrpc": "2.0",
                    "method": "notifications/message",
                    "params": {"level": "info", "data": "x" * 9999},
                }
                print(json.dumps(note))
            start, page = int(params.get("cursor", 0)), told.get("page", 10**6)
            answer = {"result": {"tools": told["tools"][start : start + page]}}
            if start + page < len(told["tools"]):
                answer["result"]["nextCursor"] = str(start + page)
        elif method == "tools/call":
            result = called(params["name"], params.get("arguments", {}), params.get("_meta", {}))
            if told.get("die_in") == "call":
                sys.exit(4)
            answer = {"result": result}
        else:
            answer = {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], **answer}), flush=True)
        if method == "initialize" and told.get("die_in") == "between":
            sys.exit(5)


if __name__ == "__main__":
    main()
