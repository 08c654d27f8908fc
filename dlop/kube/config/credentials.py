"""Credentials from service accounts and kubeconfigs: tokens in files, exec plugins and client certificates.

A token file is read every minute, because the kubelet rotates service account tokens. The result of an exec plugin and a
client certificate are used until shortly before they expire. If the server rejects the credentials, everything is read
again, including the kubeconfig.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dlop.kube.config.cluster import RequestAuth
from dlop.kube.config.kubeconfig import Kubeconfig, read_kubeconfig
from dlop.kube.config.tls import TlsConfig
from dlop.kube.errors import ConfigurationError

_TOKEN_FILE_SECONDS = 60.0
# Credentials are renewed before they expire: after nine tenths of their remaining lifetime, at most a minute early.
_EARLY_SHARE = 0.1
_EARLY_SECONDS = 60.0


class ServiceAccountCredentials:
    """The token and CA bundle that the kubelet mounts into a pod."""

    def __init__(self, directory: Path, *, clock: Callable[[], float]) -> None:
        self._directory = directory
        self._clock = clock
        self._tls = _TlsContextCache()

    async def read(self, *, rejected: bool) -> RequestAuth:
        ca_data = _read_file(self._directory / "ca.crt", "the CA bundle of the service account")
        token = _read_token(self._directory / "token", origin="the service account")
        return RequestAuth(
            authorization=_check_header(f"Bearer {token}", origin="the service account"),
            tls=self._tls.context(TlsConfig(ca_data=ca_data), origin=f"the service account in {self._directory}"),
            renew_at=self._clock() + _TOKEN_FILE_SECONDS,
        )


class KubeconfigCredentials:
    """The user of one kubeconfig context."""

    def __init__(
        self, paths: str, *, context: str | None, first: Kubeconfig, clock: Callable[[], float], environ: Mapping[str, str]
    ) -> None:
        """`first` is the kubeconfig as it was read by the caller, for the first read."""
        self._paths = paths
        self._context = context
        self._clock = clock
        self._environ = environ
        self._first: Kubeconfig | None = first
        self._tls = _TlsContextCache()

    async def read(self, *, rejected: bool) -> RequestAuth:
        """Read the files, and run the exec plugin if there is one."""
        first, self._first = self._first, None
        config = first if first is not None and not rejected else await read_kubeconfig(self._paths, context=self._context)
        if config.authenticator is not None:
            return await self._from_plugin(config)
        if config.token_file is not None:
            authorization: str | None = f"Bearer {_read_token(config.token_file, origin=config.origin)}"
            return self._auth(
                config, config.tls, authorization=authorization, expires_at=math.inf, renew_at=self._clock() + _TOKEN_FILE_SECONDS
            )
        return self._auth(config, config.tls, authorization=config.authorization, expires_at=math.inf)

    async def _from_plugin(self, config: Kubeconfig) -> RequestAuth:
        assert config.authenticator is not None  # noqa: S101 - checked by the caller
        credential = await config.authenticator.run(origin=config.origin, environ=self._environ)
        tls = config.tls
        if credential.client_certificate_data and credential.client_key_data:
            tls = replace(tls, cert_data=credential.client_certificate_data.encode(), key_data=credential.client_key_data.encode())
        expires_at = credential.expiration_timestamp.timestamp() if credential.expiration_timestamp is not None else math.inf
        return self._auth(config, tls, authorization=f"Bearer {credential.token}" if credential.token else None, expires_at=expires_at)

    def _auth(
        self, config: Kubeconfig, tls: TlsConfig, *, authorization: str | None, expires_at: float, renew_at: float = math.inf
    ) -> RequestAuth:
        now = self._clock()
        certificate_expires_at = tls.certificate_expires_at(origin=config.origin)
        if certificate_expires_at is not None:
            _check_not_expired(certificate_expires_at, now, config.origin)
            expires_at = min(expires_at, certificate_expires_at)
        early = min(_EARLY_SECONDS, (expires_at - now) * _EARLY_SHARE)
        return RequestAuth(
            authorization=_check_header(authorization, origin=config.origin),
            tls=self._tls.context(tls, origin=config.origin) if config.server.startswith("https:") else None,
            renew_at=min(renew_at, expires_at - early),
        )


class _TlsContextCache:
    """Returns the same context for an unchanged TLS config, so that open connections can be reused."""

    def __init__(self) -> None:
        self._config: TlsConfig | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, config: TlsConfig, *, origin: str) -> ssl.SSLContext:
        if self._context is None or config != self._config:
            self._context, self._config = config.context(origin=origin), config
        return self._context


def _check_not_expired(expires_at: float, now: float, origin: str) -> None:
    if expires_at <= now:
        expired_on = datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise ConfigurationError(f"the client certificate of {origin} expired on {expired_on}: get a new kubeconfig")


def _read_token(path: Path, *, origin: str) -> str:
    token = _read_file(path, f"the token file of {origin}").decode(errors="replace").strip()
    if not token:
        raise ConfigurationError(f"the token file of {origin}, {path}, is empty: write a token to it or get a new kubeconfig")
    return token


def _check_header(authorization: str | None, *, origin: str) -> str | None:
    """Return `authorization` if it can be sent as a header."""
    if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
        raise ConfigurationError(f"the token of {origin} contains a line break or another invalid character: get a new one")
    return authorization


def _read_file(path: Path, description: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {description}, {path}: {error.strerror}; check the path and its permissions") from error
