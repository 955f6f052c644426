"""Layer 5, actions: every write. One transaction = change + trace event + audit entry, published on commit."""
