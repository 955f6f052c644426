"""Serves the site by uvicorn on a socket that its starter has bound: `python -m agentdesk.serve --fd N`.

Without `--fd` it binds AGENTDESK_BIND and AGENTDESK_PORT itself (as in a container).
"""

from __future__ import annotations

import argparse
import os
import socket

import uvicorn

from agentdesk import environment

CLOSE_WITHIN_S = 5  # open sockets (each a page that watches) are closed after this, so that a stop is quick


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, help="a bound socket, handed down")
    given = parser.parse_args().fd
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentdesk.settings")
    config = uvicorn.Config(
        "agentdesk.asgi:application",
        host=environment.text("AGENTDESK_BIND", "127.0.0.1"),
        port=environment.number("AGENTDESK_PORT", 8700, least=1),
        lifespan="off",
        log_config=None,  # Django's, set up by the application
        server_header=False,
        proxy_headers=environment.flag("AGENTDESK_HTTPS"),
        forwarded_allow_ips=environment.text("AGENTDESK_PROXIES", "127.0.0.1,::1"),
        timeout_graceful_shutdown=CLOSE_WITHIN_S,
        ws_max_size=64 * 1024,  # browsers only say what they have seen
    )
    sockets = None if given is None else [socket.socket(fileno=given)]
    uvicorn.Server(config).run(sockets=sockets)


if __name__ == "__main__":
    main()
