"""The desk's views, a file a noun."""
