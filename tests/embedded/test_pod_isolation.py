"""What a pod is kept from, what others are kept from in a pod's files, and manifests that try to get round it."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.resources import CORE_EVENTS, SECRETS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import main, pod, sh
from tests.embedded.node_world import NodeWorld, embedded_world

_MOUNTED = [{"name": "it", "mountPath": "/it"}]
_GANG = "volcano"


@pytest.fixture(params=["namespaces", "plain"])
async def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Both ways to run pods, where the machine has both."""
    if request.param == "plain":
        return PlainRuntime(dice=Random(3))
    chosen = await choose()
    if isinstance(chosen.runtime, PlainRuntime):
        pytest.skip(chosen.reason)
    return chosen.runtime


@pytest.fixture
async def world(runtime: Runtime, tmp_path: Path) -> AsyncIterator[NodeWorld]:
    """A node whose folder was there before it, open to everybody."""
    folder = tmp_path / "node"
    folder.mkdir(mode=0o755)
    async with embedded_world(runtime, folder) as world:
        yield world


async def test_nobody_else_reads_what_is_in_a_pods_volumes_and_logs(world: NodeWorld) -> None:
    assert stat.S_IMODE(world.folder.stat().st_mode) == 0o700
    await world.create(SECRETS, {"metadata": {"name": "vault"}, "stringData": {"word": "hush"}})
    await world.run_pod("a", pod(sh("cat /it/word", volumeMounts=_MOUNTED), volumes=[{"name": "it", "secret": {"secretName": "vault"}}]))
    assert (await world.sees_the_end("a"))["phase"] == "Succeeded"
    assert world.output("a") == "hush"


async def test_a_pod_gets_a_token_of_its_service_account_which_no_other_user_may_read(world: NodeWorld) -> None:
    sources = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
    script = "stat -L -c %a /it/token; cut -d. -f1 /it/token"
    await world.run_pod("a", pod(sh(script, volumeMounts=_MOUNTED), volumes=[{"name": "it", "projected": sources}]))
    assert (await world.sees_the_end("a"))["phase"] == "Succeeded"
    mode, header = world.output("a").split()
    assert (mode, header[:2]) == ("600", "ey")


@pytest.mark.parametrize(
    "fields", [{"workingDir": "/a\0b"}, {"env": [{"name": "A", "value": "a\0b"}]}, {"command": ["tr\0ue"]}, {"args": ["a\0b"]}]
)
async def test_a_null_byte_keeps_a_container_from_starting_and_it_says_so(world: NodeWorld, fields: JsonObject) -> None:
    container = {**sh("true"), **fields}
    await world.run_pod("a", pod(container))
    status = await world.sees_the_end("a")
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["reason"], terminated["exitCode"]) == ("StartError", 128)
    assert terminated["message"]


@pytest.mark.parametrize(
    "volume",
    [
        {"hostPath": {"path": "/a\0b"}},
        {"downwardAPI": {"items": [{"path": "../../out", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"downwardAPI": {"items": [{"path": "a\0b", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ],
)
async def test_a_volume_with_a_path_that_cannot_be_is_told_and_nothing_is_written(world: NodeWorld, volume: JsonObject) -> None:
    await world.run_pod("a", pod(sh("true"), volumes=[{"name": "it", **volume}]))
    told = await world.hears("a", {"reason": "FailedMount", "type": "Warning"})
    assert "invalid path" in told["message"]
    assert not list(world.folder.rglob("out"))


async def test_a_sub_path_that_is_a_link_out_of_its_volume_is_refused(world: NodeWorld, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "link").symlink_to("/etc")
    mounts = [{"name": "it", "mountPath": "/it", "subPath": "link"}]
    await world.run_pod("a", pod(sh("true", volumeMounts=mounts), volumes=[{"name": "it", "hostPath": {"path": str(volume)}}]))
    await world.sees("a", main(state={"waiting": {"reason": "CreateContainerConfigError"}}))


async def test_nothing_of_a_manifest_is_read_by_a_shell(world: NodeWorld, tmp_path: Path) -> None:
    made = tmp_path / "made"
    words = [f"$(touch {made})", f"; touch {made}", f"`touch {made}`", "$(A)"]
    container = {
        "name": "main",
        "image": f"x; touch {made}",
        "command": ["echo", *words],
        "env": [{"name": "A", "value": f"$(touch {made})"}],
    }
    await world.run_pod("a", pod(container))
    assert (await world.sees_the_end("a"))["phase"] == "Succeeded"
    assert world.output("a") == " ".join([*words[:3], f"$(touch {made})"]) + "\n"
    assert not made.exists()


# --- not of seclusion, but of one node alone --------------------------------------------------------------------------------


async def test_pods_for_another_scheduler_are_taken_where_there_is_no_other(tmp_path: Path) -> None:
    async with embedded_world(PlainRuntime(dice=Random(3)), tmp_path, schedules_all=True) as world:
        await world.run_pod("a", pod(sh("true"), schedulerName=_GANG))
        assert (await world.sees_the_end("a"))["phase"] == "Succeeded"


async def test_pods_for_another_scheduler_are_left_to_it(tmp_path: Path) -> None:
    async with embedded_world(PlainRuntime(dice=Random(3)), tmp_path) as world:
        await world.run_pod("theirs", pod(sh("true"), schedulerName=_GANG))
        await world.run_pod("ours", pod(sh("true")))
        await world.sees_the_end("ours")
        assert all("nodeName" not in version["spec"] for version in world.sight("theirs").versions)


async def test_the_events_of_one_second_are_listed_in_the_order_in_which_they_happened(tmp_path: Path) -> None:
    async with embedded_world(PlainRuntime(dice=Random(3)), tmp_path) as world:
        await world.run_pod("a", pod(sh("true")))
        await world.hears("a", {"reason": "Started"})
        listed: dict[str, Any] = await world.client.list(CORE_EVENTS, namespace=world.namespace)
        assert [event["reason"] for event in listed["items"]] == ["Scheduled", "Pulled", "Created", "Started"]
