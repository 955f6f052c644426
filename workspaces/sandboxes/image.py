"""Makes sure that the sandbox image is in the engine: used, built, or made from the machine's own packages.

Never pulls more than the base, and never replaces an image that is there: the tag holds a hash of what it is
built from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import docker
import docker.errors
import requests.exceptions

from workspaces.sandboxes.base import SandboxUnavailable
from workspaces.sandboxes.engines import Engine, engine_errors

REPOSITORY = "agentdesk-sandbox"
DEFAULT_BASE = "debian:bookworm-slim"
BASE_VARIABLE = "AGENTDESK_SANDBOX_BASE"
DEFAULT_MIRROR = "http://deb.debian.org/debian"
BUILD_FOLDER = Path(__file__).resolve().parents[2] / "compose" / "sandbox"
_PACKAGES = "python3,git,ca-certificates"
_DEBOOTSTRAP_S = 900

Progress = Callable[[str], None]


def default_base() -> str:
    return os.environ.get(BASE_VARIABLE, "") or DEFAULT_BASE


def default_tag() -> str:
    """Changes with the Dockerfile and with the base asked for, so that a change builds anew."""
    text = (BUILD_FOLDER / "Dockerfile").read_bytes() + default_base().encode()
    return f"{REPOSITORY}:{hashlib.sha256(text).hexdigest()[:12]}"


def ensure_image(client: docker.DockerClient, tag: str, progress: Progress) -> None:
    """Raises SandboxUnavailable with a hint of one line when the image can neither be found nor made."""
    try:
        if _exists(client, tag):
            return
        base = default_base()
        if _exists(client, base) or _pulled(client, base, progress):
            _build(client, tag, base, progress)
        elif os.environ.get(BASE_VARIABLE):
            raise SandboxUnavailable(
                f"the base image {base} is not here and cannot be pulled",
                hint=f"set {BASE_VARIABLE} to an image that this engine has",
            )
        else:
            _build(client, tag, _bootstrapped(client, progress), progress)
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise SandboxUnavailable(
            f"the sandbox image cannot be made: {str(error)[:300]}",
            hint="is the Docker engine running?",
        ) from None


def ensure_everywhere(engines: Mapping[str, Engine], tag: str, progress: Progress) -> dict[str, str]:
    """The image on every engine: made on the first that answers, copied to the others. Which were left out, and why.

    Raises SandboxUnavailable when no engine has it in the end.
    """
    source: docker.DockerClient | None = None
    missed: dict[str, str] = {}
    first: SandboxUnavailable | None = None
    for name, engine in engines.items():
        try:
            if source is None:
                ensure_image(engine.client, tag, progress)
                source = engine.client
            elif not _exists(engine.client, tag):
                progress(f"sandbox image: copying {tag} to {name}")
                with engine_errors():
                    image = source.images.get(tag).save(named=True)
                    engine.client.images.load(image)  # type: ignore[arg-type]
        except SandboxUnavailable as error:
            first = first or error
            missed[name] = str(error)
    if source is None and first is not None:
        raise first
    return missed


def _exists(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _pulled(client: docker.DockerClient, base: str, progress: Progress) -> bool:
    progress(f"sandbox image: pulling {base}")
    repository, _, tag = base.partition(":")
    try:
        client.images.pull(repository, tag or "latest")
    except docker.errors.APIError as error:
        progress(f"sandbox image: {base} cannot be pulled ({_first_line(str(error.explanation or error))})")
        return False
    return True


def _build(client: docker.DockerClient, tag: str, base: str, progress: Progress) -> None:
    progress(f"sandbox image: building {tag} from {base}")
    try:
        client.images.build(path=str(BUILD_FOLDER), tag=tag, buildargs={"BASE": base}, rm=True, forcerm=True)
    except docker.errors.BuildError as error:
        raise SandboxUnavailable(
            f"the sandbox image cannot be built: {_first_line(str(error))}",
            hint=f"set {BASE_VARIABLE} to an image that holds python3, git and ca-certificates",
        ) from None


def _bootstrapped(client: docker.DockerClient, progress: Progress) -> str:
    """A base image from the packages of this machine's own distribution. Its name."""
    release = os_release()
    distribution, suite = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    hint = f"connect the engine to a registry, or set {BASE_VARIABLE} to an image that it has"
    if os.geteuid() != 0 or distribution not in ("debian", "ubuntu") or not suite:
        raise SandboxUnavailable(f"no base image: {DEFAULT_BASE} cannot be pulled", hint=hint)
    if not shutil.which("debootstrap"):
        raise SandboxUnavailable(
            f"no base image: {DEFAULT_BASE} cannot be pulled and debootstrap is not installed",
            hint="apt-get install -y debootstrap",
        )
    name = f"{REPOSITORY}-base:{suite}"
    if _exists(client, name):
        return name
    mirror = mirror_of(apt_sources(), suite)
    progress(f"sandbox image: making a base with debootstrap from {mirror} (about a minute)")
    with tempfile.TemporaryDirectory(prefix="agentdesk-base-") as folder:
        tree = Path(folder) / "tree"
        argv = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", suite, str(tree), mirror]
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_DEBOOTSTRAP_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SandboxUnavailable("debootstrap took too long", hint=hint) from None
        if done.returncode:
            lines = done.stdout.decode(errors="replace").strip().splitlines()
            raise SandboxUnavailable(f"debootstrap failed: {lines[-1] if lines else ''}"[:300], hint=hint)
        shutil.rmtree(tree / "var/cache/apt/archives", ignore_errors=True)
        shutil.rmtree(tree / "var/lib/apt/lists", ignore_errors=True)
        archive = Path(folder) / "base.tar"
        subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
        repository, _, tag = name.partition(":")
        client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
    return name


def os_release() -> Mapping[str, str]:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return {}
    return {key: value.strip().strip('"') for key, _, value in (line.partition("=") for line in lines)}


def apt_sources(folder: Path = Path("/etc/apt")) -> str:
    """All of this machine's apt sources as one text."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    texts = [file.read_text(errors="replace") for file in files if file.is_file()]
    return "\n\n".join(texts)


def mirror_of(sources: str, suite: str) -> str:
    """The first archive that serves exactly `suite` (not its updates), in either format of sources."""
    for line in sources.splitlines():
        words = line.split()
        if words[:1] == ["deb"]:
            words = [word for word in _without_options(line).split() if word]
            if len(words) >= 3 and words[2] == suite and words[1].startswith(("http://", "https://")):
                return words[1]
    for block in sources.split("\n\n"):
        fields: dict[str, str] = {}
        for line in block.splitlines():
            if not line.startswith(("#", " ")) and ":" in line:
                key, _, value = line.partition(":")
                fields[key.strip().lower()] = value.strip()
        if suite in fields.get("suites", "").split() and "deb" in fields.get("types", "").split():
            for address in fields.get("uris", "").split():
                if address.startswith(("http://", "https://")):
                    return address
    return DEFAULT_MIRROR


def _without_options(line: str) -> str:
    before, bracket, rest = line.partition("[")
    return f"{before} {rest.partition(']')[2]}" if bracket else line


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:200]
