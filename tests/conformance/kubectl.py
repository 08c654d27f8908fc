"""An unmodified kubectl, pointed at the server of a case."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from dlop.kube.types import JsonObject
from tests.conformance.support import PATIENCE_SECONDS, Api

_AGE = re.compile(r"\b\d+(s|m(\d+s)?)\b")


@dataclass(frozen=True)
class Said:
    """What kubectl printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The words of a table, line by line, with every age as `AGE`."""
        return [_AGE.sub("AGE", line).split() for line in self.out.splitlines()]


@dataclass(frozen=True)
class Kubectl:
    """kubectl in the namespace of one case."""

    program: Path
    api: Api
    folder: Path
    """For kubectl's own caches: what one server said must not be believed of another."""

    async def __call__(self, *words: str, stdin: JsonObject | str | None = None) -> Said:
        """Run a command that must succeed."""
        said = await self.run(*words, stdin=stdin)
        assert said.code == 0, f"kubectl {' '.join(words)}: {said.err}{said.out}"
        return said

    async def fails(self, *words: str, stdin: JsonObject | str | None = None) -> str:
        """Run a command that must fail; returns what it complained about."""
        said = await self.run(*words, stdin=stdin)
        assert said.code != 0, f"kubectl {' '.join(words)} succeeded: {said.out}"
        return said.err

    async def run(self, *words: str, stdin: JsonObject | str | None = None) -> Said:
        """Run a command, however it ends."""
        given = stdin if isinstance(stdin, str) else json.dumps(stdin) if stdin is not None else ""
        async with self.running(*words) as process, asyncio.timeout(2 * PATIENCE_SECONDS):
            out, err = await process.communicate(given.encode())
            return Said(await process.wait(), out.decode(), err.decode())

    @asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command that goes on until the block ends."""
        pipe = asyncio.subprocess.PIPE
        flags = ("--kubeconfig", str(self.api.server.kubeconfig), "--namespace", self.api.namespace)
        environment = {"HOME": str(self.folder), "KUBECACHEDIR": str(self.folder / "cache")}
        process = await asyncio.create_subprocess_exec(
            str(self.program), *flags, *words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
