"""The real product in a real browser: Chromium against web, worker and scheduler as processes."""
