"""Runs an unmodified kubectl against the server under test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dlop.kube.types import JsonObject
from tests.conformance.support import TIMEOUT_SECONDS, Api

_AGE = re.compile(r"\b\d+(s|m(\d+s)?)\b")


@dataclass(frozen=True)
class KubectlResult:
    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The cells of a table by line. Each age is replaced by `AGE`."""
        return [_AGE.sub("AGE", line).split() for line in self.out.splitlines()]

    @property
    def description(self) -> dict[str, str]:
        """The first value of each name in the output of `kubectl describe`."""
        values: dict[str, str] = {}
        for line in self.out.splitlines():
            name, colon, value = line.strip().partition(":")
            if colon:
                values.setdefault(name, value.strip())
        return values


@dataclass(frozen=True)
class Kubectl:
    """kubectl in the namespace of one test."""

    binary: Path
    api: Api
    home: Path
    """Holds kubectl's discovery cache, so each server needs a directory of its own."""

    async def __call__(self, *args: str, stdin: JsonObject | str | None = None) -> KubectlResult:
        """Run a command that must succeed."""
        result = await self.run(*args, stdin=stdin)
        assert result.code == 0, f"kubectl {' '.join(args)}: {result.err}{result.out}"
        return result

    async def expect_failure(self, *args: str, stdin: JsonObject | str | None = None) -> str:
        """Run a command that must fail, and return its standard error."""
        result = await self.run(*args, stdin=stdin)
        assert result.code != 0, f"kubectl {' '.join(args)} succeeded: {result.out}"
        return result.err

    async def run(self, *args: str, stdin: JsonObject | str | None = None) -> KubectlResult:
        """Run a command that may succeed or fail."""
        text = stdin if isinstance(stdin, str) else json.dumps(stdin) if stdin is not None else ""
        async with self.start(*args) as process, asyncio.timeout(2 * TIMEOUT_SECONDS):
            out, err = await process.communicate(text.encode())
            return KubectlResult(await process.wait(), out.decode(), err.decode())

    @asynccontextmanager
    async def start(self, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start a command. It is killed when the block ends."""
        pipe = asyncio.subprocess.PIPE
        flags = ("--kubeconfig", str(self.api.server.kubeconfig), "--namespace", self.api.namespace)
        env = {"HOME": str(self.home), "KUBECACHEDIR": str(self.home / "cache")}
        process = await asyncio.create_subprocess_exec(str(self.binary), *flags, *args, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
