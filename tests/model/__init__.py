"""A real, small model on this machine: its weights, its server, and tests that let it work. Run on demand."""
