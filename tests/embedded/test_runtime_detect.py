"""The detected runtime works, and its description says why it was selected."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import ExitStatus
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from tests.embedded.runtime_kit import start_pods

# A limit of zero in a user namespace forbids nested user namespaces, as on a locked-down machine.
LOCKED_DOWN = """
import asyncio, os
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.launcher.syscalls import CLONE_NEWUSER, unshare
user = os.geteuid()
unshare(CLONE_NEWUSER)
open("/proc/self/uid_map", "w").write(f"0 {user} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
detected = asyncio.run(detect_runtime())
print(type(detected.runtime).__name__, detected.description)
"""


async def test_the_detected_runtime_runs_a_pod(tmp_path: Path) -> None:
    detected = await detect_runtime()
    async with start_pods(detected.runtime, tmp_path) as pods:
        assert await (await pods.pod()).shell("echo hello") == (ExitStatus(0), "hello")


async def test_this_machine_allows_namespaces() -> None:
    detected = await detect_runtime()
    assert isinstance(detected.runtime, NamespacesRuntime)
    assert detected.description == (
        "pods run in namespaces: own network without external access, host files read-only, home and /run hidden; not a security boundary"
    )


async def test_the_pod_network_and_namespaces_can_be_disabled() -> None:
    on_host = await detect_runtime(own_network=False)
    assert on_host.description == (
        "pods run in namespaces: the host's network, on which ports can collide and are exposed, host files read-only, "
        "home and /run hidden; not a security boundary"
    )
    plain = await detect_runtime(namespaces=False)
    assert plain.description.endswith("service names resolve only in arguments and variables (namespaces are disabled)")


async def test_without_namespaces_pods_are_plain_processes_and_the_description_gives_the_reason() -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", LOCKED_DOWN),
        cwd=Path(__file__).parents[2],
        env=os.environ,
        stdout=asyncio.subprocess.PIPE,
    )
    text = (await program.communicate())[0].decode()
    assert text == (
        "PlainRuntime nothing isolates pods: they run as plain processes with your permissions, can change your files and this cluster, "
        "and share the host's network; service names resolve only in arguments and variables "
        "(namespaces are not available: unshare: No space left on device; user.max_user_namespaces is 0)\n"
    )
