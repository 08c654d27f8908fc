"""TLS contexts from the certificates that a kubeconfig, an exec plugin or a service account gives."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dlop.kube.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """What a TLS context is made of. Equal material makes an equal context, so it is compared before one is built."""

    authorities: bytes | None = None
    """The trusted authorities as PEM; the system's own where there are none."""
    certificate: bytes | None = None
    key: bytes | None = None
    verify: bool = True

    def certificate_expiry(self, *, origin: str) -> float | None:
        """The wall time at which the client certificate ends; none without one."""
        if self.certificate is None:
            return None
        # Imported here: an operator in a cluster has a token, and the library would be a twentieth of its memory.
        from cryptography import x509  # noqa: PLC0415

        try:
            return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc.timestamp()
        except ValueError as error:
            raise ConfigurationError(f"the client certificate of {origin} is no PEM certificate: {error}") from error

    def context(self, *, origin: str) -> ssl.SSLContext:
        """A client's context.

        Raises:
            ConfigurationError: when the certificates are unusable; the message names `origin`.
        """
        context = self._trusting(origin)
        # Strict checking came with Python 3.13 and refuses the authorities that cluster installers make.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            self._identify(context, origin)
        return context

    def _trusting(self, origin: str) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=self.authorities.decode() if self.authorities else None)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"the certificate authority of {origin} is no PEM certificate: {error}; get the cluster's again"
            ) from error

    def _identify(self, context: ssl.SSLContext, origin: str) -> None:
        # The ssl module takes a client certificate from files only; they are gone again at once.
        with tempfile.TemporaryDirectory(prefix="dlop-") as folder:
            certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            certificate.write_bytes(self.certificate or b"")
            key.write_bytes(self.key or b"")
            try:
                context.load_cert_chain(certificate, key, password=_no_password)
            except (ssl.SSLError, ValueError) as error:
                raise ConfigurationError(f"the client certificate and key of {origin} do not work: {error}; get new ones") from error


def _no_password() -> str:
    # Without this, OpenSSL would ask on the terminal for the password of an encrypted key.
    raise ValueError("the key is encrypted")
