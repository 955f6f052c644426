"""Layer 3, tools: what an agent can call. No Django, no models."""
