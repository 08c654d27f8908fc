"""Credentials that are read again when they are due: tokens in files, exec plugins, certificates.

A token file is read every minute, as a service account's token is replaced long before it ends. What an exec plugin
gives is used until shortly before it ends, and so is a client certificate. When the server refuses any of them,
everything is read anew, the kubeconfig included.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dlop.kube.config.cluster import Access
from dlop.kube.config.exec_plugin import ExecCredential
from dlop.kube.config.kubeconfig import Kubeconfig, read_kubeconfig
from dlop.kube.config.tls import TlsMaterial
from dlop.kube.errors import ConfigurationError

_TOKEN_FILE_SECONDS = 60.0
# How long before their end credentials are replaced: a tenth of the life they have left, and never more than a minute.
_EARLY_SHARE = 0.1
_EARLY_SECONDS = 60.0


class ServiceAccountCredentials:
    """The token and the authorities that the kubelet keeps up to date in a pod's file system."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        self._folder = folder
        self._clock = clock
        self._tls = _TlsOfMaterial()

    async def read(self, *, refused: bool) -> Access:
        """Read both files."""
        authorities = _contents(self._folder / "ca.crt", "the service account's authorities")
        return Access(
            authorization=_checked(f"Bearer {_token(self._folder / 'token', origin='the service account')}", origin="the service account"),
            tls=self._tls.context(TlsMaterial(authorities=authorities), origin=f"the service account in {self._folder}"),
            renew_at=self._clock() + _TOKEN_FILE_SECONDS,
        )


class KubeconfigCredentials:
    """The user of one context of a kubeconfig."""

    def __init__(
        self, paths: str, *, context: str | None, first: Kubeconfig, clock: Callable[[], float], environ: Mapping[str, str]
    ) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock
        self._environ = environ
        self._first: Kubeconfig | None = first
        self._tls = _TlsOfMaterial()

    async def read(self, *, refused: bool) -> Access:
        """Read the files and run the exec plugin, if there is one."""
        first, self._first = self._first, None
        found = first if first is not None and not refused else await read_kubeconfig(self._paths, context=self._context)
        if found.exec_source is not None:
            return await self._from_plugin(found)
        if found.token_file is not None:
            authorization: str | None = f"Bearer {_token(found.token_file, origin=found.origin)}"
            return self._access(found, found.tls, authorization=authorization, end=math.inf, renew_at=self._clock() + _TOKEN_FILE_SECONDS)
        return self._access(found, found.tls, authorization=found.authorization, end=math.inf)

    async def _from_plugin(self, found: Kubeconfig) -> Access:
        assert found.exec_source is not None  # noqa: S101 - asked just before
        given: ExecCredential = await found.exec_source.run(origin=found.origin, environ=self._environ)
        material = found.tls
        if given.client_certificate_data and given.client_key_data:
            material = replace(material, certificate=given.client_certificate_data.encode(), key=given.client_key_data.encode())
        end = given.expiration_timestamp.timestamp() if given.expiration_timestamp is not None else math.inf
        return self._access(found, material, authorization=f"Bearer {given.token}" if given.token else None, end=end)

    def _access(
        self, found: Kubeconfig, material: TlsMaterial, *, authorization: str | None, end: float, renew_at: float = math.inf
    ) -> Access:
        now = self._clock()
        certificate_end = material.certificate_expiry(origin=found.origin)
        if certificate_end is not None:
            _check_not_over(certificate_end, now, found.origin)
            end = min(end, certificate_end)
        early = min(_EARLY_SECONDS, (end - now) * _EARLY_SHARE)
        tls = self._tls.context(material, origin=found.origin) if found.server.startswith("https:") else None
        return Access(authorization=_checked(authorization, origin=found.origin), tls=tls, renew_at=min(renew_at, end - early))


class _TlsOfMaterial:
    """Keeps the context while the material stays the same, so that open connections stay in use."""

    def __init__(self) -> None:
        self._material: TlsMaterial | None = None
        self._context: ssl.SSLContext | None = None

    def context(self, material: TlsMaterial, *, origin: str) -> ssl.SSLContext:
        if self._context is None or material != self._material:
            self._context, self._material = material.context(origin=origin), material
        return self._context


def _check_not_over(end: float, now: float, origin: str) -> None:
    if end <= now:
        when = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise ConfigurationError(f"the client certificate of {origin} expired on {when}: get a new kubeconfig")


def _token(path: Path, *, origin: str) -> str:
    token = _contents(path, f"the token file of {origin}").decode(errors="replace").strip()
    if not token:
        raise ConfigurationError(f"the token file of {origin}, {path}, is empty: put a token there or get a new kubeconfig")
    return token


def _checked(authorization: str | None, *, origin: str) -> str | None:
    """The same, if it can be sent as a header."""
    if authorization is not None and not (authorization.isascii() and authorization.isprintable()):
        raise ConfigurationError(f"the token of {origin} has a line break or another character in it that no token has: get a new one")
    return authorization


def _contents(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{what}, {path}, cannot be read: {error.strerror}; check the path and its permissions") from error
