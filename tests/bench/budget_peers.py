"""What the bench of budgets holds beside ours: a counter that is checked before each call, and a LiteLLM proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.bench.budget_traffic import LIMIT_USD, USD_PER_MTOK, Provider, in_waves, post

REPO = Path(__file__).resolve().parents[2]
LITELLM = "litellm[proxy]==1.108.7"
PER_TOKEN = USD_PER_MTOK / 1_000_000
_MODEL = """
model_list:
  - model_name: bench
    litellm_params:
      model: openai/bench
      api_base: {url}
      api_key: none
      input_cost_per_token: {price}
      output_cost_per_token: {price}
      max_budget: {limit}
      budget_duration: 1d
litellm_settings: {{num_retries: 0}}
"""


def check_then_call(server: Provider) -> dict[str, Any]:
    """Written here: what was spent is looked at before a call and added to after it."""

    def ask() -> str:
        return "refused" if server.usd >= LIMIT_USD else post(server.url)

    return _measured(server, lambda: in_waves(ask))


def _measured(server: Provider, play: Any) -> dict[str, Any]:
    server.forget()
    seen = play()
    over = max(Decimal(0), server.usd - LIMIT_USD)
    return {
        "calls": server.answered,
        "spent_usd": float(round(server.usd, 6)),
        "over_usd": float(round(over, 6)),
        "refused": seen.total() - seen["200"],
    }


def litellm(server: Provider) -> dict[str, Any]:
    """The budget of its deployment, which its router keeps in memory. Those of keys and users need its database, whose
    engine is a download.
    """
    try:
        with _proxy(server.url) as url:
            return _measured(server, lambda: in_waves(lambda: post(url)))
    except _NotStarted as why:
        return {"not_run": str(why)[-200:]}


class _NotStarted(Exception):
    pass


@contextmanager
def _proxy(upstream: str) -> Iterator[str]:
    command = _installed()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="agentdesk-bench-") as home:
        config = Path(home) / "config.yaml"
        config.write_text(_MODEL.format(url=upstream, price=f"{PER_TOKEN:f}", limit=LIMIT_USD))
        environment = os.environ | {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        environment.pop("DATABASE_URL", None)
        log = Path(home) / "log"
        with log.open("w") as out:
            running = subprocess.Popen(
                [str(command), "--config", str(config), "--port", str(port), "--host", "127.0.0.1"],
                cwd=home,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_until_up(running, f"http://127.0.0.1:{port}/health/liveliness", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGTERM)
                try:
                    running.wait(15)
                except subprocess.TimeoutExpired:
                    os.killpg(running.pid, signal.SIGKILL)


def _wait_until_up(running: subprocess.Popen[bytes], address: str, log: Path) -> None:
    for _ in range(180):
        if running.poll() is not None:
            raise _NotStarted(log.read_text())
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise _NotStarted(f"not up after 90 s: {log.read_text()}")


def _installed() -> Path:
    home = REPO / "build" / "peers" / "litellm"
    if not (home / "bin" / "litellm").exists():
        print(f"installing {LITELLM} into an environment of its own …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "-q", LITELLM], check=True, stdout=sys.stderr)
    return home / "bin" / "litellm"
