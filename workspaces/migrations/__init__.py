"""Database migrations, small and named for what they do."""
