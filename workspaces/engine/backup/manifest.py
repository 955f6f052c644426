"""What a backup holds and how it is proved: `manifest.json`, written last. Without it a folder is no backup."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workspaces.sandboxes.snapshots.copies import Copy

FORMAT = 1
NAME = "manifest.json"
MARK = "agentdesk-backup"  # there from the first moment: tells an unfinished backup from somebody's folder


class BackupError(Exception):
    """It cannot be done. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class FileProof:
    """`path` is relative to the backup."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Disks:
    """The snapshots of one driver. `copies`: parents first; `named`: those that the database knows."""

    store: str
    copies: list[Copy]
    named: list[str]


@dataclass(slots=True)
class Manifest:
    """`key_prints`: the first of them is of the key that seals; the keys themselves may be kept elsewhere."""

    made_at: str
    product: str
    postgres: str
    database: FileProof
    key_prints: list[str]
    keys: list[FileProof] = field(default_factory=list)
    uploads: list[FileProof] = field(default_factory=list)
    disks: dict[str, Disks] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        replace_text(folder / NAME, json.dumps(asdict(self), indent=1))

    def files(self) -> list[FileProof]:
        return [self.database, *self.keys, *self.uploads]


def read(folder: Path) -> Manifest | None:
    """None when there is none. Raises BackupError when it cannot be read."""
    try:
        found = json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BackupError(f"{folder / NAME} cannot be read: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        form = found.get("format") if isinstance(found, dict) else None
        raise BackupError(f"{folder} is a backup of form {form!r}; this version reads form {FORMAT}.")
    try:
        return _manifest(found)
    except (LookupError, TypeError, AttributeError) as error:
        raise BackupError(f"{folder / NAME} is damaged: {type(error).__name__}: {error}") from None


def _manifest(found: dict[str, Any]) -> Manifest:
    """Raises LookupError, TypeError or AttributeError for what is none."""
    parts: dict[str, Any] = {"database": FileProof(**found["database"])}
    for part in ("keys", "uploads"):
        parts[part] = [FileProof(**proof) for proof in found[part]]
    parts["disks"] = {
        driver: Disks(disks["store"], [Copy(**copy) for copy in disks["copies"]], disks["named"])
        for driver, disks in found["disks"].items()
    }
    return Manifest(**found | parts)


def proof_of(folder: Path, path: Path) -> FileProof:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileProof(str(path.relative_to(folder)), path.stat().st_size, digest)


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raises BackupError when one is gone or is not what it was."""
    for proof in manifest.files():
        path = folder / proof.path
        if not path.is_file() or proof_of(folder, path) != proof:
            raise BackupError(f"{path} is gone or damaged: this backup cannot be restored.")


def key_print(key: str) -> str:
    """Names a key without telling it."""
    return hashlib.sha256(b"agentdesk key\x00" + key.encode()).hexdigest()[:24]


def replace_text(path: Path, text: str) -> None:
    """Readable by its owner only; the whole of it or what was there."""
    draft = path.with_name(f".{secrets.token_hex(6)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
