"""Certificates for servers on the loopback: an authority of its own and one server certificate, made when needed.

`kubectl` sends a bearer token only over TLS, so the API server needs a certificate that the kubeconfig can vouch for, and
a kubelet's API is never spoken without. Keys live in memory; the standard library reads them only from a file, which is
private and gone as soon as it is read.
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
# Clocks differ: a certificate that begins now may begin in the future for somebody.
_VALID_SINCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the server needs to speak TLS, and what clients need to trust it."""

    context: ssl.SSLContext
    authority_pem: str


def make_certificates(
    *, now_seconds: float, name: str = "dlop-apiserver", address: str = "127.0.0.1", client_authority_pem: str | None = None
) -> Certificates:
    """A fresh authority and a certificate for localhost and the address.

    With `client_authority_pem` clients may show a certificate, which must then be from that authority.
    """
    now = datetime.fromtimestamp(now_seconds, UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, now)
    server = _server(_Served(name, address, server_key), authority, authority_key, now)
    pem = server.public_bytes(serialization.Encoding.PEM) + server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = _context(pem)
    if client_authority_pem is not None:
        context.load_verify_locations(cadata=client_authority_pem)
        context.verify_mode = ssl.CERT_OPTIONAL
    return Certificates(context, authority.public_bytes(serialization.Encoding.PEM).decode())


def _context(pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory(prefix="dlop-tls-") as folder:
        path = Path(folder) / "server.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem)
        context.load_cert_chain(path)
    return context


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name("dlop-ca")
    builder = _builder(name, name, key.public_key(), now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return builder.sign(key, hashes.SHA256())


@dataclass(frozen=True, slots=True)
class _Served:
    """The one who shows the certificate."""

    name: str
    address: str
    key: ec.EllipticCurvePrivateKey


def _server(served: _Served, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address(served.address))]
    builder = _builder(_name(served.name), authority.subject, served.key.public_key(), now)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _VALID_SINCE).not_valid_after(now + _VALID_FOR)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
