"""E-mail by the site's own mail server: plain text, and simple HTML beside it. Sends to one address a message.

The same message has the same Message-ID at every try, so a mailbox that got it twice can tell.
"""

from __future__ import annotations

import asyncio
import contextlib
import smtplib
from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.template.loader import render_to_string

from agentdesk.scrub import scrub
from workspaces.domain.alert_texts import Told, plain, told_of
from workspaces.domain.endpoints import AttemptOutcome
from workspaces.domain.mail import address_problem, domain_of, one_line
from workspaces.domain.text import clean_text, clip
from workspaces.queries.mail import why_no_mail

from .base import TOTAL_S, NotSent, Parcel, Sent

SUBJECT_CHARS = 160
ANSWER_CHARS = 500
Out = AttemptOutcome
_SETUP = (smtplib.SMTPAuthenticationError, smtplib.SMTPHeloError, smtplib.SMTPNotSupportedError)
_SENT_HEADERS = ("Message-ID", "Date", "References", "List-Id", "List-Unsubscribe", "Auto-Submitted")


class Email:
    async def send(self, parcel: Parcel) -> Sent:
        """The mail server may take its time over each answer, so it is spoken to in a thread."""
        told = told_of(parcel.type, parcel.body["data"])
        at = datetime.fromisoformat(parcel.body["timestamp"])
        try:
            async with asyncio.timeout(TOTAL_S):
                return await asyncio.to_thread(deliver, told, parcel.address, uid=parcel.id, at=at)
        except TimeoutError:
            raise NotSent(f"The mail server took longer than {TOTAL_S:g} s.", Out.TIMEOUT, heard=_to_server()) from None


def deliver(told: Told, address: str, *, uid: str, at: datetime) -> Sent:
    """One mail, now, in the calling thread. Raises NotSent.

    What the server refuses for good (5xx) is permanent: the address, or this message. What is wrong between this site
    and its mail server is not the address's fault, and is tried again.
    """
    if problem := why_no_mail():
        raise NotSent(problem, Out.FAULT)
    if problem := address_problem(address):
        raise NotSent(f"Nothing was sent: {problem}.", Out.FORBIDDEN, permanent=True)
    mail = composed(told, address, uid=uid, at=at)
    server = get_connection()
    try:
        server.send_messages([mail])
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()))
        raise _refused("the address", code, said) from None
    except smtplib.SMTPDataError as error:
        raise _refused("the message", error.smtp_code, error.smtp_error) from None
    except smtplib.SMTPSenderRefused as error:
        raise _set_up_wrongly("refused the sender", error.smtp_code, error.smtp_error) from None
    except smtplib.SMTPConnectError as error:
        raise _set_up_wrongly("took no connection", error.smtp_code, error.smtp_error) from None
    except _SETUP as error:
        number = getattr(error, "smtp_code", None)
        raise _set_up_wrongly("did not let this site in", number, getattr(error, "smtp_error", str(error))) from None
    except TimeoutError:
        raise NotSent("The mail server did not answer in time.", Out.TIMEOUT, heard=_to_server()) from None
    except (smtplib.SMTPException, OSError) as error:
        words = f"The mail server: {_text(error) or type(error).__name__}"
        raise NotSent(words, Out.CONNECTION, heard=_to_server()) from None
    finally:
        with contextlib.suppress(smtplib.SMTPException, OSError):
            server.close()
    return _to_server(
        250,
        headers={
            "To": address,
            **{name: mail.extra_headers[name] for name in _SENT_HEADERS if name in mail.extra_headers},
        },
    )


def composed(told: Told, address: str, *, uid: str, at: datetime) -> EmailMultiAlternatives:
    domain = domain_of(settings.EMAIL_FROM)
    headers = {
        "Message-ID": f"<{uid}@{domain}>",
        "Date": format_datetime(at),
        "Auto-Submitted": "auto-generated",
        "X-Auto-Response-Suppress": "All",
        "List-Id": f"agentdesk alerts <alerts.{domain}>",
        "List-Unsubscribe": f"<{settings.PUBLIC_URL}/alerts/endpoints/>",
    }
    if told.thread:
        headers["References"] = f"<{told.thread}@{domain}>"
    mail = EmailMultiAlternatives(
        subject=one_line(f"[agentdesk] {told.title}", SUBJECT_CHARS),
        body=clean_text(plain(told)),
        from_email=settings.EMAIL_FROM,
        to=[address],
        headers=headers,
    )
    mail.attach_alternative(clean_text(render_to_string("mail/message.html", {"told": told})), "text/html")
    return mail


def _refused(what: str, code: int, said: Any) -> NotSent:
    permanent = 500 <= code <= 599
    words = f"The mail server refused {what}{'' if permanent else ' for now'}: {code} {_text(said)}"
    return NotSent(words, Out.REFUSED, permanent=permanent, heard=_to_server(code, _text(said)))


def _set_up_wrongly(what: str, code: int | None, said: Any) -> NotSent:
    words = f"The mail server {what}: {code or ''} {_text(said)}".replace(":  ", ": ")
    return NotSent(words, Out.FAULT, heard=_to_server(code, _text(said)))


def _text(said: Any) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return clip(scrub(clean_text(text)), ANSWER_CHARS)


def _to_server(status: int | None = None, said: str = "", headers: Mapping[str, str] | None = None) -> Sent:
    place = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    return Sent(address=place[:64], status=status, response_body=said, request_headers=headers or {})
