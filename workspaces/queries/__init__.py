"""Layer 4, queries: every read that two callers share."""
