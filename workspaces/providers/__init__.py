"""Models behind one contract (base.py). Knows no Django; a vendor's SDK is loaded only when asked for."""

from __future__ import annotations

from typing import Literal

from workspaces.providers.base import Provider, ProviderConfig

ProviderName = Literal["openai", "anthropic", "scripted"]
PROVIDER_NAMES: tuple[ProviderName, ...] = ("openai", "anthropic", "scripted")


def make_provider(name: str, config: ProviderConfig) -> Provider:
    """Cheap, sends nothing. Raises ValueError for an unknown name, ScenarioError for a bad scenario."""
    if name == "openai":
        from workspaces.providers.openai import OpenAIProvider

        return OpenAIProvider(config)
    if name == "anthropic":
        from workspaces.providers.anthropic import AnthropicProvider

        return AnthropicProvider(config)
    if name == "scripted":
        from workspaces.providers.scripted import ScriptedProvider

        return ScriptedProvider(config)
    raise ValueError(f"no provider is called {name!r}; there are {', '.join(PROVIDER_NAMES)}")
