"""The form of an endpoint: where messages go, and what the links in them may do. Who may is asked by the action."""

from __future__ import annotations

from typing import Any

from django import forms

from workspaces.domain.endpoints import EndpointKind, EndpointLinks
from workspaces.models import Endpoint, User

KINDS = (
    (EndpointKind.WEBHOOK, "Webhook", "A program of yours: JSON, signed by the Standard Webhooks specification."),
    (
        EndpointKind.SLACK,
        "Chat",
        "An incoming webhook of Slack, Mattermost or Rocket.Chat, or of Discord with /slack at its end.",
    ),
    (EndpointKind.EMAIL, "E-mail", "One mailbox. It is written to once its owner has confirmed it."),
)
LINKS = (
    (EndpointLinks.NONE, "None", "Messages lead to pages alone, where one has to sign in."),
    (
        EndpointLinks.ACKNOWLEDGE,
        "Acknowledge and resolve",
        "Whoever gets a message can take the alert up, or close it, without signing in.",
    ),
    (
        EndpointLinks.ANSWER,
        "Answer as well",
        "Whoever gets a message can also approve or reject what an agent may not do alone. Choose it only where you "
        "trust everybody who reads there as yourself.",
    ),
)


class EndpointForm(forms.Form):
    """`endpoint` None: a new one, whose owner the field `of` says. Every field is kept as it was typed."""

    of = forms.ChoiceField(choices=(("site", "the site"), ("me", "me")), required=False)
    kind = forms.ChoiceField(
        choices=[(kind.value, name) for kind, name, _ in KINDS], error_messages={"required": "Choose what it is."}
    )
    name = forms.CharField(max_length=120, error_messages={"required": "Give the endpoint a name."})
    address = forms.CharField(max_length=2_100, error_messages={"required": "Say where messages go."})
    links = forms.ChoiceField(choices=[(links.value, name) for links, name, _ in LINKS])

    def __init__(self, user: User, endpoint: Endpoint | None = None, data: Any = None) -> None:
        initial: dict[str, Any] = {"links": EndpointLinks.ACKNOWLEDGE.value, "of": "me"}
        if endpoint is not None:
            initial = {"name": endpoint.name, "links": endpoint.links}
            initial["address"] = "" if endpoint.sealed_address else endpoint.address
        super().__init__(data, initial=initial)
        self.user, self.endpoint = user, endpoint
        if endpoint is not None:
            self.fields["kind"].required = False
            self.fields["address"].required = not endpoint.sealed_address

    @property
    def chosen_kind(self) -> EndpointKind:
        return EndpointKind(self.endpoint.kind if self.endpoint is not None else self.cleaned_data["kind"])

    @property
    def owner(self) -> User | None:
        """Only site staff make the site's."""
        if self.endpoint is not None:
            return self.endpoint.owner
        of = self.data.get("of") if self.is_bound else self.initial.get("of")
        return None if of == "site" and self.user.is_staff else self.user

    @property
    def kind_choices(self) -> list[tuple[str, str, str, bool]]:
        chosen = self["kind"].value()
        return [(kind.value, name, line, kind.value == chosen) for kind, name, line in KINDS]

    @property
    def link_choices(self) -> list[tuple[str, str, str, bool]]:
        chosen = self["links"].value()
        return [(links.value, name, line, links.value == chosen) for links, name, line in LINKS]


def links_words(links: str) -> tuple[str, str]:
    """Its name, and what it means."""
    return next((name, line) for each, name, line in LINKS if each.value == links)
