"""Certificates for servers on loopback: a CA and one server certificate, generated at start.

`kubectl` sends a bearer token only over TLS, and the kubelet's API requires TLS. Keys stay in memory, except for a private temporary
file, because the ssl module loads keys only from files.
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_FOR = timedelta(days=365)
# Allows for clock skew of clients.
_CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The server's TLS context, and the CA certificate that clients must trust."""

    context: ssl.SSLContext
    ca_pem: str


def generate_certificates(
    *, now_seconds: float, name: str = "dlop-apiserver", address: str = "127.0.0.1", client_ca_pem: str | None = None
) -> Certificates:
    """Generate a CA and a certificate for localhost and `address`.

    With `client_ca_pem`, client certificates are optional and must be issued by that CA.
    """
    now = datetime.fromtimestamp(now_seconds, UTC)
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _ca_certificate(ca_key, now)
    server = _server_certificate(_ServerIdentity(name, address, server_key), ca, ca_key, now)
    pem = server.public_bytes(serialization.Encoding.PEM) + server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = _tls_context(pem)
    if client_ca_pem is not None:
        context.load_verify_locations(cadata=client_ca_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return Certificates(context, ca.public_bytes(serialization.Encoding.PEM).decode())


def _tls_context(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="dlop-tls-") as directory:
        path = Path(directory) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
    return context


def _ca_certificate(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name("dlop-ca")
    builder = _builder(name, name, key.public_key(), now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(is_ca=True), critical=True)
    return builder.sign(key, hashes.SHA256())


@dataclass(frozen=True, slots=True)
class _ServerIdentity:
    name: str
    address: str
    key: ec.EllipticCurvePrivateKey


def _server_certificate(
    identity: _ServerIdentity, ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.Certificate:
    names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address(identity.address))]
    builder = _builder(_name(identity.name), ca.subject, identity.key.public_key(), now)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + _VALID_FOR)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )
