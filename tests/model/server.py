"""Starts the local model as a server with an OpenAI-compatible API, and stops it. Never downloads anything.

    python -m tests.model.server [--port 8081]      # in the foreground, to point a profile at it

The template in fenced.jinja asks for calls as fenced JSON and shows earlier calls in the same form. A model as small
as this one writes them so whatever it is asked for: with the template in the file, calls of the API's own form
failed 20 times of 20.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from agentdesk.embedded.process import Child
from tests.model.weights import NotReady, server_python, weights_path

TEMPLATE = Path(__file__).with_name("fenced.jinja")
START_S = 120.0


class LocalModel:
    """A context manager. `base_url` is what a profile names; `model` the model's name there.

    `plain`: the server leaves calls in the text, where they are streamed as they are written, and it is the product
    that finds them. Otherwise the server hands them over as calls.
    """

    def __init__(self, *, plain: bool = True, port: int = 0, threads: int = 2) -> None:
        self.plain = plain
        self.gguf = weights_path()
        self.model = self.gguf.stem
        self.base_url = ""
        self._folder = Path(tempfile.mkdtemp(prefix="agentdesk-model-"))
        argv = [str(server_python()), str(Path(__file__).with_name("serve.py")), str(self.gguf)]
        argv += ["--template", str(TEMPLATE), "--port", str(port), "--threads", str(threads)]
        self._child = Child(
            "model",
            [*argv, "--plain"] if plain else argv,
            run=self._folder,
            log=self._folder / "model.log",
            # A waiting thread sleeps instead of spinning: ten times the speed when the cores are shared.
            env=dict(os.environ) | {"OMP_WAIT_POLICY": "passive"},
        )

    def __enter__(self) -> Self:
        try:
            self._child.start()
            self.base_url = self._address() + "/v1"
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._child.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self) -> str:
        return self._child.log.read_text(errors="replace")

    def _address(self) -> str:
        """Where it answers, once the model is loaded."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            found = re.search(r"^http://127\.0\.0\.1:\d+$", self.log(), re.MULTILINE)
            if found is not None and _healthy(found[0]):
                return found[0]
            if not self._child.alive():
                break
            time.sleep(0.1)
        raise NotReady(f"The model server did not start with {self.gguf}:\n{self.log()[-2000:]}")


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model.server")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    with LocalModel(port=args.port, threads=args.threads) as server:
        print(f"base URL {server.base_url}   model {server.model}   Ctrl-C stops it", flush=True)
        signal.sigwait([signal.SIGTERM, signal.SIGINT])


if __name__ == "__main__":
    try:
        main()
    except NotReady as error:
        sys.exit(str(error))
