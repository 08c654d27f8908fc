"""TLS contexts for the certificates of a kubeconfig, an exec plugin or a service account."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dlop.kube.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The PEM data for a TLS context. Contexts of equal configs are interchangeable."""

    ca_data: bytes | None = None
    """Trusted CAs; None for those of the system."""
    cert_data: bytes | None = None
    key_data: bytes | None = None
    verify: bool = True

    def certificate_expires_at(self, *, origin: str) -> float | None:
        """Wall time in seconds at which the client certificate expires; None without one."""
        if self.cert_data is None:
            return None
        # Imported late, because an operator in a cluster uses a token, and the library takes a twentieth of its memory.
        from cryptography import x509  # noqa: PLC0415

        try:
            return x509.load_pem_x509_certificate(self.cert_data).not_valid_after_utc.timestamp()
        except ValueError as error:
            raise ConfigurationError(f"the client certificate of {origin} is not a PEM certificate: {error}") from error

    def context(self, *, origin: str) -> ssl.SSLContext:
        """A client context.

        Raises:
            ConfigurationError: the certificates are unusable; the message names `origin`.
        """
        context = self._context_with_ca(origin)
        # Python 3.13 enables strict checks, which reject the CAs that some cluster installers create.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_data is not None:
            self._load_client_certificate(context, origin)
        return context

    def _context_with_ca(self, origin: str) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=self.ca_data.decode() if self.ca_data else None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate authority of {origin} is not a PEM certificate: {error}; get the CA of the cluster again"
            ) from error

    def _load_client_certificate(self, context: ssl.SSLContext, origin: str) -> None:
        # The ssl module reads client certificates only from files. They are deleted immediately.
        with tempfile.TemporaryDirectory(prefix="dlop-") as directory:
            certificate, key = Path(directory, "certificate.pem"), Path(directory, "key.pem")
            certificate.write_bytes(self.cert_data or b"")
            key.write_bytes(self.key_data or b"")
            try:
                context.load_cert_chain(certificate, key, password=_no_password)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigurationError(f"the client certificate and key of {origin} are not usable: {error}; get new ones") from error


def _no_password() -> str:
    # Without a callback, OpenSSL would prompt on the terminal for the password of an encrypted key.
    raise ValueError("the key is encrypted")
