"""A self-signed client certificate for the API server of a temporary cluster, which it presents to kubelets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cluster_credentials import write_secret
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = timedelta(days=3650)
_CLOCK_SKEW = timedelta(hours=1)


def write_client_certificate(certificate: Path, key: Path, *, name: str) -> None:
    """Write a new private key and a certificate for the client `name` that is its own certificate authority."""
    private_key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(private_key, hashes.SHA256())
    )
    write_secret(certificate, signed.public_bytes(serialization.Encoding.PEM).decode())
    pem = private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    write_secret(key, pem.decode())
