"""Credentials from a program: the `exec` user of a kubeconfig.

kubernetes-asyncio runs such a program too, but without a limit in time, without an end for certificates, and it
waits for ever on a program that writes much to its standard error.
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

# Long enough for a person to log in, where the program asks for that.
_TIMEOUT_SECONDS = 300.0


class ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    """What the program answers."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: ExecCredential


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """How to run the program, as the kubeconfig says it."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


@dataclass(frozen=True, slots=True)
class ExecSource:
    """One exec user of one kubeconfig."""

    plugin: ExecPlugin
    folder: Path
    """A command with a slash in it is relative to the kubeconfig's folder."""
    cluster: JsonObject = field(default_factory=dict)
    """What the program is told about the cluster, if it asks for that."""

    async def run(self, *, origin: str, environ: Mapping[str, str]) -> ExecCredential:
        """Run the program once.

        Raises:
            ConfigurationError: it is not there, fails, or answers with something else; the message names it and `origin`.
        """
        interactive = self.plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if self.plugin.interactive_mode == "Always" and not interactive:
            raise ConfigurationError(f"the program {self.plugin.command} of {origin} wants a terminal and there is none: run dlop in one")
        code, output, complaint = await self._output(origin=origin, environ=environ, interactive=interactive)
        if code != 0:
            said = f": {complaint.strip()}" if complaint.strip() else ""
            raise ConfigurationError(
                f"the program {self.plugin.command} of {origin} ended with code {code}{said}; run it by hand to see why"
            )
        return self._credential(output, origin=origin)

    async def _output(self, *, origin: str, environ: Mapping[str, str], interactive: bool) -> tuple[int, bytes, str]:
        command = str(self.folder / self.plugin.command) if "/" in self.plugin.command else self.plugin.command
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(self.plugin.args or ()),
                env=self._environment(environ, interactive=interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                # A group of its own, so that whatever it has started can be ended with it.
                start_new_session=not interactive,
            )
        except OSError as error:
            hint = f"; {self.plugin.install_hint.strip()}" if self.plugin.install_hint.strip() else ", or is not in PATH: install it"
            raise ConfigurationError(f"the program {command} of {origin} cannot be run ({error.strerror}){hint}") from error
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                output, complaint = await _all_output(process, has_group=not interactive)
        except TimeoutError as error:
            raise ConfigurationError(f"the program {command} of {origin} did not end within {_TIMEOUT_SECONDS:.0f} seconds") from error
        return process.returncode or 0, output, (complaint or b"").decode(errors="replace")

    def _environment(self, environ: Mapping[str, str], *, interactive: bool) -> dict[str, str]:
        spec: JsonObject = {"interactive": interactive}
        if self.plugin.provide_cluster_info:
            spec["cluster"] = self.cluster
        question = {"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec}
        own = {variable.name: variable.value for variable in self.plugin.env or ()}
        return {**environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode()}

    def _credential(self, output: bytes, *, origin: str) -> ExecCredential:
        who = f"the program {self.plugin.command} of {origin}"
        try:
            answer = msgspec.json.decode(output, type=_Answer)
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{who} did not answer with an ExecCredential: {error}; run it by hand to see why") from error
        if (answer.kind, answer.api_version) != ("ExecCredential", self.plugin.api_version):
            raise ConfigurationError(
                f"{who} answered with {answer.kind} {answer.api_version}, not with ExecCredential {self.plugin.api_version}"
            )
        if not answer.status.token and not (answer.status.client_certificate_data and answer.status.client_key_data):
            raise ConfigurationError(f"{who} answered with neither a token nor a certificate and its key; run it by hand to see why")
        return answer.status


async def _all_output(process: asyncio.subprocess.Process, *, has_group: bool) -> tuple[bytes, bytes | None]:
    ended = False
    try:
        output = await process.communicate()
        ended = True
        return output
    finally:
        if not ended:
            _kill(process, with_group=has_group)
            await process.wait()


def _kill(process: asyncio.subprocess.Process, *, with_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if with_group:  # a child that lives on keeps the pipes open, and the wait for their end would not be over
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
