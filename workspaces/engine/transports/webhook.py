"""Webhooks by the Standard Webhooks specification: three headers, a JSON body, a signature for each valid secret."""

from __future__ import annotations

from datetime import UTC, datetime

from standardwebhooks import Webhook as Signer

from workspaces.domain.endpoints import AttemptOutcome
from workspaces.domain.webhooks import body_text

from .base import NotSent, Parcel, Sent
from .http import post


class Webhook:
    async def send(self, parcel: Parcel) -> Sent:
        if not parcel.secrets:
            raise NotSent("The endpoint has no signing secret.", AttemptOutcome.FAULT)
        text = body_text(parcel.body)
        headers = {"Content-Type": "application/json", **signed_headers(parcel, text, datetime.now(UTC))}
        return await post(
            parcel.address,
            text.encode(),
            headers,
            private=parcel.private,
            hidden=(*parcel.secrets, *parcel.tokens),
        )


def signed_headers(parcel: Parcel, text: str, at: datetime) -> dict[str, str]:
    """`at`: of this try, not of what it tells: a receiver refuses what is older than five minutes."""
    signatures = [Signer(secret).sign(parcel.id, at, text) for secret in parcel.secrets]
    return {
        "webhook-id": parcel.id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
