"""Where alerts are sent, and how a delivery lives. Pure."""

from __future__ import annotations

from enum import StrEnum


class EndpointKind(StrEnum):
    WEBHOOK = "webhook"  # Standard Webhooks
    SLACK = "slack"  # Slack's incoming webhooks, and those who take the same
    EMAIL = "email"


class EndpointState(StrEnum):
    UNCONFIRMED = "unconfirmed"  # an e-mail address whose owner has not said yes
    ENABLED = "enabled"
    DISABLED = "disabled"  # by a person
    FAILED = "failed"  # by agentdesk: it failed for long, or said that it is gone
    REMOVED = "removed"


class EndpointLinks(StrEnum):
    """What the links in a message may do."""

    NONE = "none"
    ACKNOWLEDGE = "acknowledge"  # and resolve
    ANSWER = "answer"  # and approve or reject what an agent may not do alone


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up; it can be sent again by hand
    CANCELLED = "cancelled"  # its endpoint was removed


class AttemptOutcome(StrEnum):
    BEGUN = "begun"  # written before it is made: a worker that died leaves it so
    DELIVERED = "delivered"
    REFUSED = "refused"  # an answer other than 2xx
    GONE = "gone"  # 410
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    FORBIDDEN = "forbidden"  # the address may not be reached
    FAULT = "fault"  # on our side


class LinkAction(StrEnum):
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"
    APPROVE = "approve"
    REJECT = "reject"
    CONFIRM = "confirm"  # an e-mail address
