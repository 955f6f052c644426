"""Uploads that go straight to AGENTDESK_HOME/uploads/<random>/, counted while they arrive. Nothing is unpacked here.

A file that is too large is thrown away while the rest of the form is still read, so that what was typed can be
shown again.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, SkipFile
from django.http import HttpRequest

from workspaces.domain.text import clean_text


class StoredUpload(UploadedFile):
    """A file that lies in its folder; `path` is absolute."""

    def __init__(self, path: Path, name: str, content_type: str, size: int) -> None:
        super().__init__(BytesIO(), name, content_type, size)
        self.path = path


class HomeUploadHandler(FileUploadHandler):
    """Writes each file under a name of our own. `refused` lists what was too large, in words."""

    chunk_size = 256 * 1024

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request)
        self.folder = Path(settings.MEDIA_ROOT) / secrets.token_hex(16)
        self.refused: list[str] = []
        self.count = 0
        self.written_bytes = 0
        self._out: IO[bytes] | None = None
        self._path = self.folder

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        if self.count >= settings.UPLOAD_MAX_FILES:
            self._refuse(f"more than {settings.UPLOAD_MAX_FILES:,} files")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = self.folder / str(self.count)
        self._out = self._path.open("wb")
        self.count += 1

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        limit = settings.UPLOAD_MAX_BYTES
        if start + len(raw_data) > limit:
            self._refuse(f"{self.file_name} is larger than {limit // 1024**2} MB")
        self.written_bytes += len(raw_data)
        if self.written_bytes > settings.UPLOAD_MAX_EXPANDED_BYTES:
            self._refuse(f"the files together are larger than {settings.UPLOAD_MAX_EXPANDED_BYTES // 1024**2} MB")
        assert self._out is not None
        self._out.write(raw_data)
        return None

    def file_complete(self, file_size: int) -> StoredUpload:
        self._close()
        return StoredUpload(self._path, clean_text(self.file_name or "file"), self.content_type or "", file_size)

    def upload_interrupted(self) -> None:
        self._close()
        self.throw_away()

    def throw_away(self) -> None:
        """The form was refused: nothing of it is kept."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _refuse(self, why: str) -> None:
        self.refused.append(why)
        if self._out is not None:
            self._close()
            self._path.unlink(missing_ok=True)
        raise SkipFile

    def _close(self) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None


def described(upload: StoredUpload) -> Mapping[str, str]:
    """As the task's intake names it."""
    return {"name": upload.name or "file", "path": str(upload.path)}
