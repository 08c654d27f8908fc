"""Detects which runtime this machine allows, by running a pod in it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, Mount, Runtime, SandboxRequest
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime


@dataclass(frozen=True, slots=True)
class DetectedRuntime:
    """A runtime that is not entered yet, and one line for the user about it."""

    runtime: Runtime
    description: str


async def detect_runtime(*, namespaces: bool = True, own_network: bool = True, mounts: Sequence[Mount] = ()) -> DetectedRuntime:
    """The namespaces runtime if a pod can run in it, otherwise the plain one. In namespaces, all pods have these mounts."""
    if not namespaces:
        return _plain("namespaces are disabled")
    if sys.platform != "linux":
        return _plain("namespaces require Linux")
    runtime = NamespacesRuntime(host_network=not own_network, mounts=mounts)
    try:
        await _run_test_pod(NamespacesRuntime(host_network=not own_network))
    except (LaunchError, OSError) as error:
        return _plain(f"namespaces are not available: {error}")
    return DetectedRuntime(runtime, runtime.description)


def _plain(reason: str) -> DetectedRuntime:
    runtime = PlainRuntime()
    return DetectedRuntime(runtime, f"{runtime.description} ({reason})")


async def _run_test_pod(runtime: NamespacesRuntime) -> None:
    with tempfile.TemporaryDirectory(prefix="dlop-runtime-") as directory:
        async with runtime:
            sandbox = await runtime.create_sandbox(SandboxRequest(uid="test", hostname="test", directory=Path(directory)))
            process = await sandbox.start(LaunchRequest(argv=(sys.executable, "-I", "-S", "-c", ""), environment={}))
            status = await process.wait()
            await sandbox.close()
    if status.code != 0:
        raise LaunchError(f"a test process exited with code {status.code}")
