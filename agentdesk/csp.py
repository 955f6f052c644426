"""The Content-Security-Policy of every page: scripts and styles from own files, nothing inline, no frames."""

from __future__ import annotations

from collections.abc import Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

HEADER = "Content-Security-Policy"


def policy(*, scheme: str, host: str) -> str:
    """`connect-src` names the own host's socket, because not every browser counts it as 'self'."""
    return "; ".join(
        [
            "default-src 'self'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "font-src 'self'",
            f"connect-src 'self' {scheme}://{host}",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


class ContentSecurityPolicy:
    """Middleware. A view that set the header itself keeps its own."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        self.asynchronous = iscoroutinefunction(get_response)
        if self.asynchronous:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if self.asynchronous:
            return self._later(request)  # type: ignore[return-value]
        return self._with_header(request, self.get_response(request))

    async def _later(self, request: HttpRequest) -> HttpResponseBase:
        return self._with_header(request, await self.get_response(request))  # type: ignore[misc]

    @staticmethod
    def _with_header(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        scheme = "wss" if request.is_secure() else "ws"
        response.headers.setdefault(HEADER, policy(scheme=scheme, host=request.get_host()))
        return response
