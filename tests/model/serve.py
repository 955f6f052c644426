"""The model server: llama.cpp's OpenAI-compatible HTTP server, until the process is told to stop.

Runs in the environment that has `xllamacpp` and nothing of the product's, so it imports nothing of it. The first
line on stdout is the address. Use `python -m tests.model.server`, which starts this.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--template", type=Path, help="a chat template in place of the one in the file")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--plain", action="store_true", help="leave calls in the text instead of looking for them")
    args = parser.parse_args()

    # SIGTERM waits until it is asked for: the server's own threads must not be the ones that take it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    params = xllamacpp.CommonParams()
    params.model.path = str(args.gguf)
    params.model_alias = {args.gguf.stem}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_ctx = args.context
    params.n_gpu_layers = 0
    params.cache_ram_mib = 0
    params.ui = False
    params.use_jinja = True
    params.force_pure_content_parser = args.plain
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    if args.template is not None:
        params.chat_template = args.template.read_text()
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    signal.sigwait([signal.SIGTERM, signal.SIGINT])
    del server


if __name__ == "__main__":
    main()
