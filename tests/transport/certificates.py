"""Certificates for tests."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """A certificate authority for one test."""

    def __init__(self, name: str = "test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), days=1)
        self._certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, days: float = 1, hosts: tuple[str, ...] = ("127.0.0.1",)) -> KeyPair:
        """A certificate for a server or a client. With negative `days` it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        certificate = (
            _builder(subject, self._name, key.public_key(), days=days).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        )
        key_pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem)

    def server_context(
        self, directory: Path, *, hosts: tuple[str, ...] = ("127.0.0.1",), require_client_cert: bool = False
    ) -> ssl.SSLContext:
        """The TLS context of a server with a certificate of this CA."""
        pair = self.issue("server", hosts=hosts)
        (directory / "server.crt").write_bytes(pair.certificate)
        (directory / "server.key").write_bytes(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server.crt", directory / "server.key")
        if require_client_cert:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.pem.decode())
        return context


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
