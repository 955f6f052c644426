"""One request to a vendor, from its start to a reply or a ProviderError. Knows no vendor and never retries."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import httpx2

from workspaces.providers import faults
from workspaces.providers.base import ChatReply, ProviderError
from workspaces.wire.driving import DeadlinePassed, drive


def ask(
    send: Callable[[], Coroutine[Any, Any, None]],
    *,
    read: Callable[[], ChatReply],
    explain: Callable[[BaseException], ProviderError],
    vendor_error: type[Exception],
    where: str,
    timeout_s: float,
    interrupt: threading.Event | None,
    partial: Callable[[], str],
) -> ChatReply:
    """`send` lets the reply arrive, `read` makes it one, `explain` puts what the vendor or the wire raises in words.

    Raises ProviderError, CallInterrupted.
    """
    error: ProviderError
    try:
        drive(send, timeout_s=timeout_s, interrupt=interrupt, partial=partial)
        return read()
    except ProviderError as known:
        error = known
    except DeadlinePassed:
        error = faults.too_slow(where, timeout_s)
    except (vendor_error, httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, anyio.EndOfStream) as raised:
        error = explain(raised)
    except (json.JSONDecodeError, UnicodeDecodeError):
        error = faults.unreadable(where, "not JSON in the stream")
    # Raised outside the handlers: the vendor's exceptions hold the request with its key.
    raise error
