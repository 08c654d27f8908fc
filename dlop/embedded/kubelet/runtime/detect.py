"""Which runtime this machine allows, found out by trying."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import Launch, LaunchError, Runtime, SandboxRequest
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime


@dataclass(frozen=True, slots=True)
class Choice:
    """A runtime, which is to be entered, and one line that says why this one."""

    runtime: Runtime
    reason: str


async def choose(*, namespaces: bool = True, own_network: bool = True, visible: Sequence[Path] = ()) -> Choice:
    """Namespaces where a real pod can be run in them; else, or if they are not wanted, plain processes.

    In namespaces pods have a network of their own unless that is not wanted. They see the `visible` paths, which matters for
    those below /tmp.
    """
    if not namespaces:
        return _plain("as was asked for")
    if sys.platform != "linux":
        return _plain("namespaces are a thing of Linux")
    runtime = NamespacesRuntime(host_network=not own_network, visible=visible)
    try:
        await _try_out(NamespacesRuntime(host_network=not own_network))
    except (LaunchError, OSError) as error:
        return _plain(f"this machine does not allow namespaces: {error}")
    return Choice(runtime, runtime.description)


def _plain(why: str) -> Choice:
    runtime = PlainRuntime()
    return Choice(runtime, f"{runtime.description} ({why})")


async def _try_out(runtime: NamespacesRuntime) -> None:
    with tempfile.TemporaryDirectory(prefix="dlop-runtime-") as folder:
        async with runtime:
            sandbox = await runtime.sandbox(SandboxRequest(uid="trial", hostname="trial", folder=Path(folder)))
            process = await sandbox.start(Launch(argv=(sys.executable, "-I", "-S", "-c", ""), environment={}))
            result = await process.wait()
            await sandbox.close()
    if result.code != 0:
        raise LaunchError(f"a trial ended with exit code {result.code}")
