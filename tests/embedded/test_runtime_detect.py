"""The runtime that is chosen works, and the reason for it is said in one line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import Exit
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from tests.embedded.runtime_kit import pods_of

# A limit of zero in a user namespace forbids to make others there, as a locked-down machine does.
LOCKED_DOWN = """
import asyncio, os
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.launcher.syscalls import CLONE_NEWUSER, unshare
user = os.geteuid()
unshare(CLONE_NEWUSER)
open("/proc/self/uid_map", "w").write(f"0 {user} 1")
open("/proc/sys/user/max_user_namespaces", "w").write("0")
choice = asyncio.run(choose())
print(type(choice.runtime).__name__, choice.reason)
"""


async def test_the_runtime_that_is_chosen_runs_a_pod(tmp_path: Path) -> None:
    choice = await choose()
    async with pods_of(choice.runtime, tmp_path) as pods:
        assert await (await pods.pod()).shell("echo hello") == (Exit(0), "hello")


async def test_this_machine_allows_namespaces() -> None:
    choice = await choose()
    assert isinstance(choice.runtime, NamespacesRuntime)
    assert choice.reason == "pods run in namespaces of their own (network, files, processes); they cannot reach networks outside"


async def test_a_network_of_their_own_can_be_declined_and_so_can_namespaces() -> None:
    on_host = await choose(own_network=False)
    assert on_host.reason == (
        "pods run in namespaces of their own (files, processes) on this machine's network: ports may collide, "
        "and what they open is open to the network too"
    )
    plain = await choose(namespaces=False)
    assert plain.reason.endswith("open to the network too, and service names work in variables only (as was asked for)")


async def test_where_namespaces_are_not_allowed_pods_are_plain_processes_and_the_reason_is_said() -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-c", LOCKED_DOWN),
        cwd=Path(__file__).parents[2],
        env=os.environ,
        stdout=asyncio.subprocess.PIPE,
    )
    text = (await program.communicate())[0].decode()
    assert text == (
        "PlainRuntime pods run as plain processes: they share this machine's files and network; "
        "what they open is open to the network too, and service names work in variables only "
        "(this machine does not allow namespaces: unshare: No space left on device; user.max_user_namespaces is 0)\n"
    )
