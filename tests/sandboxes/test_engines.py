"""Engines over TLS: only with the right certificates on both sides; and one that does not answer is told quickly."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.sandboxes.conftest import sh
from tests.sandboxes.second_engine import second_engine
from workspaces.sandboxes import engines, make_driver
from workspaces.sandboxes.base import SandboxSpec, SandboxUnavailable
from workspaces.sandboxes.engines import Engine


class Authority:
    """Signs certificates, each into a folder as Docker reads it: ca.pem, cert.pem, key.pem."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("authority", self.key, None, None)

    def _sign(self, name: str, key: Any, usage: Any, address: str | None) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if usage is None else self.certificate.subject
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=usage is None, path_length=None), critical=True)
        )
        if usage is not None:
            made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if address:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self.key, hashes.SHA256())

    def issue(self, folder: Path, usage: Any, address: str | None = None) -> Path:
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / "ca.pem").write_bytes(self.certificate.public_bytes(pem))
        (folder / "cert.pem").write_bytes(self._sign("tests", key, usage, address).public_bytes(pem))
        (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain))
        return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.mark.docker
@pytest.mark.long
def test_an_engine_over_tls_answers_only_who_has_the_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority()
    server = authority.issue(tmp_path / "server", ExtendedKeyUsageOID.SERVER_AUTH, "127.0.0.1")
    client = authority.issue(tmp_path / "client", ExtendedKeyUsageOID.CLIENT_AUTH)
    other = stranger.issue(tmp_path / "other", ExtendedKeyUsageOID.CLIENT_AUTH)
    (tmp_path / "half").mkdir()
    mixed = tmp_path / "mixed"  # trusts the engine, and is a stranger to it
    mixed.mkdir()
    for name, source in (("ca.pem", client), ("cert.pem", other), ("key.pem", other)):
        (mixed / name).write_bytes((source / name).read_bytes())
    address = f"tcp://127.0.0.1:{free_port()}"
    options = ["--tlsverify", "-H", address]
    options += [f"--{option}={server / name}" for option, name in (("tlscacert", "ca.pem"), ("tlscert", "cert.pem"))]
    options += [f"--tlskey={server / 'key.pem'}"]
    with second_engine(*options):
        for folder in (None, other, mixed, tmp_path / "half"):
            with pytest.raises(SandboxUnavailable):
                Engine(address, folder).facts()
        driver = make_driver("docker", tmp_path / "root", store="content", engine=Engine(address, client))
        driver.check()
        sandbox = driver.open(SandboxSpec("over-tls"))
        sandbox.start()
        try:
            assert sh(sandbox, "echo over tls; exit 3").stdout == b"over tls\n"
        finally:
            sandbox.destroy()
            driver.close()


@pytest.mark.parametrize("address", ["unix:///nowhere/at/all", "tcp://127.0.0.1:1"])
def test_an_engine_that_is_not_there_is_told_at_once(address: str) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=r"the Docker engine: .*(No such file|refused)") as told:
        Engine(address).facts()
    assert told.value.hint
    assert time.monotonic() - began < 30


def test_an_engine_that_takes_the_call_and_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "FACTS_S", 1.0)
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind("s")
        silent.listen()
        began = time.monotonic()
        with pytest.raises(SandboxUnavailable):
            Engine("unix://s").facts()
        assert time.monotonic() - began < 30
