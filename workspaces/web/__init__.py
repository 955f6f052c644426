"""Layer 8, web: parse, call an action or a query, respond."""
