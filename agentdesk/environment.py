"""Typed readers of environment variables, and the folder that holds everything this installation keeps.

Standard library only, because it is read before Django is set up. Never prints a value: some are secrets.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import ipaddress
import os
import re
import secrets
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SOCKET_PATH_MAX = 100  # bytes; sun_path holds 108 on Linux and 104 on macOS, with a NUL at the end
NODE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}\Z")
DEFAULT_NODE = "main"
RESTORING = "restoring"  # a file in the home while `manage.py restore` fills it
LONGEST_SOCKET_NAME = ".s.PGSQL.5432.lock"


class SettingError(Exception):
    """A variable cannot be read as its type. The text says which one, and what is expected."""


def text(name: str, default: str = "") -> str:
    """The variable, stripped; an empty one counts as unset, as in a shell's `VAR= command`."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, default: bool = False) -> bool:
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise SettingError(f"{name} is {value!r}; expected 1 or 0")


def number(name: str, default: int, *, least: int = 0) -> int:
    value = text(name)
    if not value:
        return default
    try:
        result = int(value)
    except ValueError:
        raise SettingError(f"{name} is {value!r}; expected a whole number") from None
    if result < least:
        raise SettingError(f"{name} is {result}; expected {least} or more")
    return result


def words(name: str, default: str = "") -> list[str]:
    """A list separated by commas."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def one_of(name: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed words; the first is the default."""
    value = text(name, allowed[0])
    if value not in allowed:
        raise SettingError(f"{name} is {value!r}; expected one of {', '.join(allowed)}")
    return value


def networks(name: str) -> list[str]:
    """Networks or addresses, separated by commas, as 10.1.0.0/16."""
    found = []
    for word in words(name):
        try:
            found.append(str(ipaddress.ip_network(word)))
        except ValueError:
            raise SettingError(f"{name} holds {word!r}; expected a network such as 10.1.0.0/16") from None
    return found


def nodes(name: str) -> dict[str, str]:
    """`name=address,…`: Docker engines by name, in the order given; one with no address when nothing is set."""
    found: dict[str, str] = {}
    for word in words(name):
        node, equals, address = (part.strip() for part in word.partition("="))
        if not equals or not NODE_NAME.match(node) or not address.startswith(("unix:///", "tcp://")):
            raise SettingError(f"{name} holds {word!r}; expected name=unix:///path or name=tcp://host:port")
        if node in found:
            raise SettingError(f"{name} names {node} twice")
        found[node] = address
    return found or {DEFAULT_NODE: ""}


def home() -> Path:
    """Where everything lies that this installation keeps: databases, keys, logs, sandboxes."""
    return Path(text("AGENTDESK_HOME", str(REPO / ".agentdesk"))).expanduser().absolute()


def run_dir(home: Path) -> Path:
    """The folder of sockets and pid files. Deep homes get a short one, as a socket's path is limited."""
    run = home / "run"
    if len(os.fsencode(run / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_MAX:
        return run
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"agentdesk-{os.getuid()}-{digest}"


def make_private(folder: Path) -> None:
    """Make the folder, readable by its owner only. Raises PermissionError when it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if found.st_mode & 0o077:
        folder.chmod(0o700)


def kept_secret(home: Path, name: str, fresh: str) -> str:
    """The secret of this name, made from `fresh` on first use. Raises OSError if the home cannot be written.

    Several processes may start at once: the file appears whole, and the first one wins.
    """
    path = home / "keys" / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    make_private(home)
    make_private(path.parent)
    handle, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(fresh + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
    return path.read_text().strip()


def secret_key(home: Path) -> str:
    return text("AGENTDESK_SECRET_KEY") or kept_secret(home, "secret_key", secrets.token_urlsafe(50))


def field_keys(home: Path) -> list[str]:
    """Fernet keys for secrets at rest: the first encrypts, all decrypt (which is how a key is replaced)."""
    given = words("AGENTDESK_FIELD_KEYS")
    if given:
        return given
    fresh = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    return kept_secret(home, "field_keys", fresh).split()
