"""How agentdesk is run: settings, URLs, ASGI, Celery and the embedded servers. No product logic."""
