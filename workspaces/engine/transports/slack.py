"""Chats by an incoming webhook as Slack has them: Slack itself, and Mattermost, Rocket.Chat and Discord (/slack).

Its address is a secret: it is kept sealed, and whoever has it can write into the channel.
"""

from __future__ import annotations

import json

from workspaces.domain.alert_texts import slack_body, told_of

from .base import Parcel, Sent
from .http import post


class Slack:
    async def send(self, parcel: Parcel) -> Sent:
        body = json.dumps(slack_body(told_of(parcel.type, parcel.body["data"])), ensure_ascii=False)
        headers = {"Content-Type": "application/json"}
        return await post(
            parcel.address, body.encode(), headers, private=parcel.private, hidden=(*parcel.secrets, *parcel.tokens)
        )
