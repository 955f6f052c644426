"""What the bench of budgets sends its traffic to and by: a small HTTP server that answers as OpenAI's does, with usage.

It counts for itself what it answered and what that cost: the truth beside which everybody's own figure is held.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AT_ONCE = 64
LIMIT_USD = Decimal("0.50")
USD_PER_MTOK = Decimal(25)  # of input and of output
OUTPUT_TOKENS = 1_000  # the limit, and what each answer takes
ANSWERS_AFTER_S = 2.0  # all first calls are under way before the first one is answered
WAVES = 4  # whoever was refused asks again
FINISH = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "finish", "arguments": '{"summary": "done"}'},
}


class Provider(ThreadingHTTPServer):
    """Port chosen by the system; `answered` and `usd` since it was last asked to `forget`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        with self.lock:
            self.answered, self.usd = 0, Decimal(0)

    def tokens(self, body: bytes) -> int:
        """Of a prompt: more than is estimated for such a text, so that every estimate misses something."""
        return len(body) // 3

    def note(self, tokens_in: int) -> None:
        with self.lock:
            self.answered += 1
            self.usd += (tokens_in + OUTPUT_TOKENS) * USD_PER_MTOK / 1_000_000

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Provider

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = json.loads(body)
        tokens_in = self.server.tokens(body)
        time.sleep(ANSWERS_AFTER_S)
        self.server.note(tokens_in)
        usage = {
            "prompt_tokens": tokens_in,
            "completion_tokens": OUTPUT_TOKENS,
            "total_tokens": tokens_in + OUTPUT_TOKENS,
        }
        head = {"id": "bench", "created": 1, "model": "bench"}
        if asked.get("stream"):
            delta = {"role": "assistant", "content": "", "tool_calls": [{"index": 0, **FINISH}]}
            parts = [
                head
                | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
                head
                | {
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
                },
                head | {"object": "chat.completion.chunk", "choices": [], "usage": usage},
            ]
            text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
            self._send("text/event-stream", text)
        else:
            message = {"role": "assistant", "content": "done"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            told = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
            self._send("application/json", json.dumps(told))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def provider() -> Iterator[Provider]:
    server = Provider()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def post(url: str) -> str:
    """One request of the peers: "200", or the status of a refusal."""
    body = {
        "model": "bench",
        "max_tokens": OUTPUT_TOKENS,
        "messages": [{"role": "user", "content": "Count the words of this text. " * 150}],
    }
    request = urllib.request.Request(
        f"{url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer sk-bench"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)


def in_waves(ask: Callable[[], str]) -> Counter[str]:
    """All at once; those that were refused again, until a wave lets nobody in. How each request ended."""
    seen: Counter[str] = Counter()
    left = AT_ONCE
    for _ in range(WAVES):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ended = Counter(pool.map(lambda _: ask(), range(left)))
        seen += ended
        left -= ended["200"]
        if not ended["200"] or not left:
            break
        time.sleep(3)  # what was spent is known to everybody
    return seen
