"""Layer 6, engine: advances tasks in workers, one step at a time."""
