"""Exec credential plugins: the `exec` user of a kubeconfig.

kubernetes-asyncio also supports them, but without a timeout, without the expiry of certificates, and it blocks forever if
a plugin writes a lot to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from dlop.kube.errors import ConfigurationError
from dlop.kube.types import JsonObject

# Long enough for an interactive login.
_TIMEOUT_SECONDS = 300.0


class ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    """The status of the ExecCredential object that a plugin prints."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredentialObject(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: ExecCredential


class _EnvVar(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The `exec` field of a kubeconfig user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


@dataclass(frozen=True, slots=True)
class ExecAuthenticator:
    """Runs the exec plugin of one kubeconfig user."""

    config: ExecConfig
    directory: Path
    """The directory of the kubeconfig. A command with a slash is relative to it."""
    cluster: JsonObject = field(default_factory=dict)
    """Cluster information for plugins with `provideClusterInfo`."""

    async def run(self, *, origin: str, environ: Mapping[str, str]) -> ExecCredential:
        """Run the plugin once.

        Raises:
            ConfigurationError: the plugin is missing, fails, or prints no credentials; the message names it and `origin`.
        """
        interactive = self.config.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if self.config.interactive_mode == "Always" and not interactive:
            raise ConfigurationError(f"the exec plugin {self.config.command} of {origin} needs a terminal: run dlop in a terminal")
        code, stdout, stderr = await self._execute(origin=origin, environ=environ, interactive=interactive)
        if code != 0:
            details = f": {stderr.strip()}" if stderr.strip() else ""
            raise ConfigurationError(
                f"the exec plugin {self.config.command} of {origin} exited with code {code}{details}; run it manually to find out why"
            )
        return self._parse(stdout, origin=origin)

    async def _execute(self, *, origin: str, environ: Mapping[str, str], interactive: bool) -> tuple[int, bytes, str]:
        command = str(self.directory / self.config.command) if "/" in self.config.command else self.config.command
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(self.config.args or ()),
                env=self._environment(environ, interactive=interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # A process group of its own, so that child processes can be killed with it.
                start_new_session=not interactive,
            )
        except OSError as error:
            hint = f"; {self.config.install_hint.strip()}" if self.config.install_hint.strip() else ", or is not in PATH: install it"
            raise ConfigurationError(f"cannot run the exec plugin {command} of {origin} ({error.strerror}){hint}") from error
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                stdout, stderr = await _communicate(process, has_group=not interactive)
        except TimeoutError as error:
            raise ConfigurationError(f"the exec plugin {command} of {origin} did not exit within {_TIMEOUT_SECONDS:.0f} seconds") from error
        return process.returncode or 0, stdout, (stderr or b"").decode(errors="replace")

    def _environment(self, environ: Mapping[str, str], *, interactive: bool) -> dict[str, str]:
        spec: JsonObject = {"interactive": interactive}
        if self.config.provide_cluster_info:
            spec["cluster"] = self.cluster
        exec_info = {"apiVersion": self.config.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {variable.name: variable.value for variable in self.config.env or ()}
        return {**environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(exec_info).decode()}

    def _parse(self, stdout: bytes, *, origin: str) -> ExecCredential:
        plugin = f"the exec plugin {self.config.command} of {origin}"
        try:
            credential = msgspec.json.decode(stdout, type=_ExecCredentialObject)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{plugin} did not print an ExecCredential: {error}; run it manually to find out why") from error
        if (credential.kind, credential.api_version) != ("ExecCredential", self.config.api_version):
            raise ConfigurationError(
                f"{plugin} printed {credential.kind} {credential.api_version}, expected ExecCredential {self.config.api_version}"
            )
        status = credential.status
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise ConfigurationError(f"{plugin} printed neither a token nor a client certificate and key; run it manually to find out why")
        return status


async def _communicate(process: asyncio.subprocess.Process, *, has_group: bool) -> tuple[bytes, bytes | None]:
    finished = False
    try:
        output = await process.communicate()
        finished = True
        return output
    finally:
        if not finished:
            _kill(process, with_group=has_group)
            await process.wait()


def _kill(process: asyncio.subprocess.Process, *, with_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if with_group:  # a surviving child process would keep the pipes open
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
