"""http_request: one HTTP request from this machine to a host that the profile allows. Never follows a way around it.

The method decides the effect. What the profile adds (keys in headers) is never shown: what a server echoes of it is
taken out of the result. It is made by agentdesk itself, not in the sandbox, whose network does not matter here.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

import anyio
import httpx2

from workspaces.domain.classify import of_http
from workspaces.domain.effects import Effect, canonical_json
from workspaces.domain.hidden import Hidden
from workspaces.domain.http_rules import READS, HttpRules, header_problem
from workspaces.domain.results import ResultClass
from workspaces.domain.schema import Problem, show
from workspaces.domain.text import clean_text, clip
from workspaces.sandboxes.base import ExecInterrupted, SandboxError
from workspaces.tools.base import OutcomeUnknown, ToolContext, ToolResult, ToolSpec
from workspaces.tools.output import OUTPUTS_FOLDER, failure, file_name, refused, result
from workspaces.wire.driving import CallInterrupted, DeadlinePassed, drive
from workspaces.wire.guarded import Guard, NotAllowed, Wire, bounded_body, guarded_client

MAX_URL_CHARS = 8_000
SHOWN_HEADERS = (
    "content-type",
    "content-length",
    "location",
    "etag",
    "last-modified",
    "link",
    "retry-after",
    "allow",
    "www-authenticate",
    "x-request-id",
)
_TEXTS = ("json", "xml", "javascript", "yaml", "x-www-form-urlencoded", "csv", "graphql", "html")
_BROKEN = (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, anyio.EndOfStream, anyio.BrokenResourceError)


def description(rules: HttpRules) -> str:
    hosts = ", ".join(sorted({place.rpartition(":")[0] for place in rules.allow})[:20])
    return (
        f"Make one HTTP request. Hosts that may be asked: {hosts}. The status, the main headers and the body come "
        "back; a body that is no text, or is long, is put into a file where save_to names one. An answer that is "
        "empty or an error page is named as such, whatever its status."
    )


def parameters(rules: HttpRules) -> dict[str, Any]:
    texts = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 40}
    return {
        "type": "object",
        "properties": {
            "method": {"type": "string", "enum": list(rules.methods)},
            "url": {"type": "string", "minLength": 1, "maxLength": MAX_URL_CHARS},
            "headers": texts,
            "body": {"type": "string", "description": "The body as text."},
            "json": {"description": "The body as a JSON value, instead of body."},
            "expect": {"enum": ["json", "any"], "description": "json: an answer that is not JSON is no success."},
            "save_to": {"type": "string", "minLength": 1, "description": "A file for the whole body of the answer."},
        },
        "required": ["method", "url"],
        "additionalProperties": False,
    }


@dataclass(slots=True)
class Answer:
    """What came back, of the last request, without the profile's secrets. Headers by their names in small letters."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    more: bool
    hops: list[str] = field(default_factory=list)


class HttpRequest:
    """`rules` hold the opened values of the profile's headers; `private`: networks that the site lets it name."""

    def __init__(self, rules: HttpRules, private: Sequence[str] = ()) -> None:
        self.rules = rules
        self.guard = Guard(rules.allow, private)
        self.hidden = Hidden(rules.secrets)
        self.spec = ToolSpec(
            name="http_request",
            description=description(rules),
            parameters=parameters(rules),
            effect=rules.worst,
            timeout_s=rules.timeout_s,
            needs_sandbox=False,
            effect_by=self._effect,
            refuses=self._problems,
        )

    def _effect(self, arguments: Mapping[str, Any]) -> Effect:
        effect = self.rules.effect_of(arguments["method"])
        return Effect.WORKSPACE if effect is Effect.NONE and "save_to" in arguments else effect

    def _problems(self, arguments: Mapping[str, Any]) -> list[Problem]:
        found = []
        url = read_url(arguments["url"])
        if isinstance(url, str):
            found.append(Problem("$.url", url, show(arguments["url"])))
        else:
            try:
                self.guard.check_name(url.host, port_of(url))
            except NotAllowed as error:
                found.append(Problem("$.url", str(error), show(arguments["url"])))
        ours = {name.lower() for values in self.rules.headers.values() for name in values}
        for name, value in arguments.get("headers", {}).items():
            problem = header_problem(name, value)
            if name.lower() in ours:
                problem = "is set by the profile"
            if problem:
                found.append(Problem(f"$.headers.{clip(name, 100)}", problem))
        if "body" in arguments and "json" in arguments:
            found.append(Problem("$.json", "only one of body and json can be sent"))
        if arguments["method"] in READS and ("body" in arguments or "json" in arguments):
            found.append(Problem("$.body", f"{arguments['method']} carries no body"))
        elif len(body_of(arguments)) > self.rules.max_request_bytes:
            found.append(Problem("$.body", f"is longer than {self.rules.max_request_bytes} bytes"))
        return found

    def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        wire = Wire()
        told = f"{arguments['method']} {clip(arguments['url'], 300)}"
        try:
            answer = drive(
                lambda: self._exchange(arguments, context, wire),
                timeout_s=self.rules.timeout_s,
                interrupt=context.interrupt,
            )
        except CallInterrupted:
            raise ExecInterrupted(context.key) from None
        except DeadlinePassed:
            why = f"no whole answer came within {self.rules.timeout_s:g} s"
            return self._broken(told, why, wire, ResultClass.TIMEOUT)
        except NotAllowed as error:
            return failure(f"{told}: {self.hidden.off(str(error))}; nothing was sent there")
        except httpx2.TimeoutException as error:
            why = f"the server did not {'answer' if wire.sent else 'take the connection'} in time"
            return self._broken(told, f"{why} ({type(error).__name__})", wire, ResultClass.TIMEOUT)
        except _BROKEN as error:
            return self._broken(told, self.hidden.off(str(error)) or type(error).__name__, wire, ResultClass.ERROR)
        return self._told(arguments, answer, context)

    def _broken(self, told: str, why: str, wire: Wire, result_class: ResultClass) -> ToolResult:
        """Raises OutcomeUnknown when something was sent."""
        if not wire.sent:
            return failure(f"{told}: {why}; nothing was sent")
        found = failure(f"{told} was sent, and then: {why}")
        known = f"{told} was sent, and no whole answer came: {why}."
        raise OutcomeUnknown(known, ToolResult(found.content.replace("error", result_class.value, 1), result_class))

    async def _exchange(self, arguments: Mapping[str, Any], context: ToolContext, wire: Wire) -> Answer:
        method, url = arguments["method"], read_url(arguments["url"])
        assert isinstance(url, httpx2.URL)
        hops: list[str] = []
        async with guarded_client(self.guard, wire, read_s=self.rules.timeout_s) as client:
            while True:
                headers = self._headers(arguments, context, url, first=not hops)
                content = body_of(arguments)
                request = client.build_request(method, url, headers=headers, content=content or None)
                response = await client.send(request, stream=True)
                try:
                    following = self._next(method, url, response, len(hops))
                    if following is None:
                        body, more = await bounded_body(response, self.rules.max_response_bytes)
                        return Answer(
                            status=response.status_code,
                            reason=self.hidden.off(response.reason_phrase),
                            headers={key.lower(): self.hidden.off(value) for key, value in response.headers.items()},
                            body=self.hidden.off_bytes(body, cut=more),
                            more=more,
                            hops=hops,
                        )
                    hops.append(f"HTTP {response.status_code} from {clip(self.hidden.off(str(url)), 300)}")
                    url = following
                finally:
                    await response.aclose()

    def _next(self, method: str, url: httpx2.URL, response: httpx2.Response, hops: int) -> httpx2.URL | None:
        """Where a redirect leads, if it is followed. Raises NotAllowed when it leads off the list."""
        place = response.headers.get("location", "")
        if response.status_code not in (301, 302, 303, 307, 308) or not place or method not in ("GET", "HEAD"):
            return None
        if hops >= self.rules.redirects:
            return None
        found = read_url(urljoin(str(url), place))
        place = clip(self.hidden.off(place), 200)
        if isinstance(found, str):
            raise NotAllowed(f"a redirect to {place!r} is not followed: it {found}")
        if url.scheme == "https" and found.scheme == "http":
            raise NotAllowed(f"a redirect to {place!r} is not followed: it leaves https")
        self.guard.check_name(found.host, port_of(found))
        return found

    def _headers(
        self, arguments: Mapping[str, Any], context: ToolContext, url: httpx2.URL, *, first: bool
    ) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "agentdesk"}
        if "json" in arguments:
            headers["Content-Type"] = "application/json"
        elif "body" in arguments:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        if arguments.get("expect") == "json":
            headers["Accept"] = "application/json"
        if first:  # what was meant for the first place is not carried to another
            headers = _merged(headers, arguments.get("headers", {}))
        if self._effect(arguments).leaves_sandbox:
            headers["Idempotency-Key"] = context.idempotency_key or context.key
        return _merged(headers, self.rules.headers_for(url.scheme, url.host, port_of(url)))

    def _told(self, arguments: Mapping[str, Any], answer: Answer, context: ToolContext) -> ToolResult:
        found, why = of_http(
            answer.status,
            answer.headers,
            answer.body,
            method=arguments["method"],
            asked="application/json" if arguments.get("expect") == "json" else "",
            truncated=answer.more,
        )
        lines = [*answer.hops, f"HTTP {answer.status} {answer.reason}".rstrip()]
        lines += [f"{name}: {clip(answer.headers[name], 500)}" for name in SHOWN_HEADERS if name in answer.headers]
        may_write = self._effect(arguments).touches_disk
        data: dict[str, Any] = {"status": answer.status, "body_bytes": len(answer.body), "redirects": len(answer.hops)}
        text = self._text(answer)
        if may_write and ("save_to" in arguments or (text is None and answer.body)):
            path = arguments.get("save_to") or f"{OUTPUTS_FOLDER}/{file_name(context.key)}.body"
            try:
                context.sandbox.write(path, answer.body)
            except SandboxError as error:
                if "save_to" in arguments and not self._effect(arguments).leaves_sandbox:
                    return refused(error)
                shown = f"[the body, {len(answer.body)} bytes, could not be saved: {error}]"
            else:
                data["saved_to"] = path
                shown = f"[the body, {len(answer.body)} bytes, is in {path}]"
            lines += ["", shown]
        elif text is None:
            lines += [
                "",
                f"[the body is no text, {len(answer.body)} bytes: ask again with save_to to have it in a file]",
            ]
        elif text:
            lines += ["", text]
        body = self.hidden.off("\n".join(lines))  # also what only decoding has shown
        return result(context, body, found, self.hidden.off(why), data, may_write=may_write)

    def _text(self, answer: Answer) -> str | None:
        """The body as text, or None when it is none."""
        kind = answer.headers.get("content-type", "").lower()
        charset = "utf-8"
        for part in kind.split(";")[1:]:
            name, _, value = part.strip().partition("=")
            charset = value.strip("\"' ") if name == "charset" else charset
        declared = kind.startswith("text/") or any(word in kind for word in _TEXTS)
        if not declared and b"\x00" in answer.body[:8192]:
            return None
        try:
            return clean_text(answer.body.decode(charset))
        except (LookupError, UnicodeDecodeError, ValueError):
            return clean_text(answer.body.decode("utf-8", "replace")) if declared or answer.more else None


def read_url(text: str) -> httpx2.URL | str:
    """The address, or what is wrong with it."""
    if any(ord(char) <= 32 or ord(char) == 127 for char in text) or "\\" in text:
        return "holds a space, a control character or a backslash: write it percent-encoded"
    try:
        url = httpx2.URL(text)
        host = url.host
    except (httpx2.InvalidURL, ValueError, UnicodeError) as error:
        return f"is no address: {clip(str(error), 200)}"
    if url.scheme not in ("http", "https") or not host:
        return "must begin with https:// (or http://) and name a host"
    if url.userinfo:
        return "must not hold a name or password"
    if url.port is not None and not 1 <= url.port <= 65_535:
        return "must name a port from 1 to 65535"
    try:
        name = url.raw_host.decode("ascii").lower().rstrip(".")
        if not name:
            return "must name a host"
        return url.copy_with(host=name, fragment=None)
    except (httpx2.InvalidURL, ValueError, UnicodeError) as error:
        return f"is no address: {clip(str(error), 200)}"


def port_of(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def body_of(arguments: Mapping[str, Any]) -> bytes:
    if "json" in arguments:
        try:
            return canonical_json(arguments["json"]).encode()
        except ValueError:
            return json.dumps(arguments["json"]).encode()
    return str(arguments.get("body", "")).encode("utf-8", "replace")


def _merged(headers: dict[str, str], more: Mapping[str, str]) -> dict[str, str]:
    taken = {name.lower() for name in more}
    return {name: value for name, value in headers.items() if name.lower() not in taken} | dict(more)
