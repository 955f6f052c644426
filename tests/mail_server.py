"""A real SMTP server for tests: it takes mail on a free port of this machine, or refuses it as it is told to."""

from __future__ import annotations

import asyncio
import email
import email.policy
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP


@dataclass
class MailServer:
    """`came`: recipient and message. `to_address`, `to_message`: its answers."""

    port: int = 0
    came: list[tuple[str, EmailMessage]] = field(default_factory=list)
    to_address: str = "250 OK"
    to_message: str = "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if self.to_address.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.to_address

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.to_message.startswith("250"):
            message = email.message_from_bytes(envelope.content, policy=email.policy.default)
            assert isinstance(message, EmailMessage)
            self.came += [(address, message) for address in envelope.rcpt_tos]
        return self.to_message


@contextmanager
def mail_server() -> Iterator[MailServer]:
    logging.getLogger("mail.log").setLevel(logging.WARNING)
    server = MailServer()
    loop = asyncio.new_event_loop()
    open_ = loop.run_until_complete(loop.create_server(lambda: SMTP(server, loop=loop), "127.0.0.1", 0))
    server.port = open_.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        open_.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
