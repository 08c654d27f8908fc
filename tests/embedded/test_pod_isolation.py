"""What pods cannot access, who can access the files of pods, and manifests that try to break out."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.resources import CORE_EVENTS, SECRETS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import main, pod, sh
from tests.embedded.node_env import NodeEnv, embedded_node_env

_VOLUME_MOUNTS = [{"name": "it", "mountPath": "/it"}]
_OTHER_SCHEDULER = "volcano"


@pytest.fixture(params=["namespaces", "plain"])
async def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Both runtimes, if the machine supports both."""
    if request.param == "plain":
        return PlainRuntime(rng=Random(3))
    detected = await detect_runtime()
    if isinstance(detected.runtime, PlainRuntime):
        pytest.skip(detected.description)
    return detected.runtime


@pytest.fixture
async def env(runtime: Runtime, tmp_path: Path) -> AsyncIterator[NodeEnv]:
    """A node whose root directory existed before and was accessible to other users."""
    directory = tmp_path / "node"
    directory.mkdir(mode=0o755)
    async with embedded_node_env(runtime, directory) as env:
        yield env


async def test_other_users_cannot_read_the_volumes_and_logs_of_a_pod(env: NodeEnv) -> None:
    assert stat.S_IMODE(env.directory.stat().st_mode) == 0o700
    await env.create(SECRETS, {"metadata": {"name": "vault"}, "stringData": {"word": "hush"}})
    await env.run_pod(
        "a", pod(sh("cat /it/word", volumeMounts=_VOLUME_MOUNTS), volumes=[{"name": "it", "secret": {"secretName": "vault"}}])
    )
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    assert env.output("a") == "hush"


async def test_a_service_account_token_is_not_readable_by_other_users(env: NodeEnv) -> None:
    sources = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
    script = "stat -L -c %a /it/token; cut -d. -f1 /it/token"
    await env.run_pod("a", pod(sh(script, volumeMounts=_VOLUME_MOUNTS), volumes=[{"name": "it", "projected": sources}]))
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    mode, header = env.output("a").split()
    assert (mode, header[:2]) == ("600", "ey")


@pytest.mark.parametrize("runtime", ["namespaces"], indirect=True)
async def test_a_pod_cannot_put_a_link_into_a_volume_that_the_node_writes_to(env: NodeEnv) -> None:
    await env.create(SECRETS, {"metadata": {"name": "vault"}, "stringData": {"word": "hush"}})
    volume = {"name": "it", "secret": {"secretName": "vault", "items": [{"key": "word", "path": "deep/word"}]}}
    script = "rm -r /it/deep && ln -s /etc /it/deep || cat /it/deep/word"
    await env.run_pod("a", pod(sh(script, volumeMounts=_VOLUME_MOUNTS), volumes=[volume]))
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    assert env.output("a").endswith("hush")


@pytest.mark.parametrize(
    "fields", [{"workingDir": "/a\0b"}, {"env": [{"name": "A", "value": "a\0b"}]}, {"command": ["tr\0ue"]}, {"args": ["a\0b"]}]
)
async def test_a_null_byte_is_a_start_error(env: NodeEnv, fields: JsonObject) -> None:
    container = {**sh("true"), **fields}
    await env.run_pod("a", pod(container))
    status = await env.wait_finished("a")
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
async def test_a_volume_with_an_invalid_path_is_an_error_and_writes_nothing(env: NodeEnv, volume: JsonObject) -> None:
    await env.run_pod("a", pod(sh("true"), volumes=[{"name": "it", **volume}]))
    event = await env.wait_for_event("a", {"reason": "FailedMount", "type": "Warning"})
    assert "invalid path" in event["message"]
    assert not list(env.directory.rglob("out"))


async def test_a_sub_path_must_not_be_a_link_out_of_its_volume(env: NodeEnv, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "link").symlink_to("/etc")
    mounts = [{"name": "it", "mountPath": "/it", "subPath": "link"}]
    await env.run_pod("a", pod(sh("true", volumeMounts=mounts), volumes=[{"name": "it", "hostPath": {"path": str(volume)}}]))
    await env.wait_for_status("a", main(state={"waiting": {"reason": "CreateContainerConfigError"}}))


async def test_a_sub_path_may_be_a_link_in_its_volume(env: NodeEnv) -> None:
    prepare = {
        **sh("mkdir -p /it/real && echo content > /it/real/file && ln -s real /it/link", volumeMounts=_VOLUME_MOUNTS),
        "name": "prepare",
    }
    mounts = [{"name": "it", "mountPath": "/part", "subPath": "link"}]
    await env.run_pod(
        "a", pod(sh("cat /part/file", volumeMounts=mounts), initContainers=[prepare], volumes=[{"name": "it", "emptyDir": {}}])
    )
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    assert env.output("a") == "content\n"


@pytest.mark.parametrize("path", ["", "pods"])
async def test_a_host_path_cannot_name_files_of_other_pods(env: NodeEnv, path: str) -> None:
    volume = {"name": "it", "hostPath": {"path": f"{env.directory}/{path}"}}
    await env.run_pod("a", pod(sh("ls /it", volumeMounts=_VOLUME_MOUNTS), volumes=[volume]))
    event = await env.wait_for_event("a", {"reason": "FailedMount", "type": "Warning"})
    assert event["message"].endswith("is not allowed: it belongs to the files of the node")


async def test_values_of_a_manifest_are_not_passed_to_a_shell(env: NodeEnv, tmp_path: Path) -> None:
    created_file = tmp_path / "created"
    arguments = [f"$(touch {created_file})", f"; touch {created_file}", f"`touch {created_file}`", "$(A)"]
    container = {
        "name": "main",
        "image": f"x; touch {created_file}",
        "command": ["echo", *arguments],
        "env": [{"name": "A", "value": f"$(touch {created_file})"}],
    }
    await env.run_pod("a", pod(container))
    assert (await env.wait_finished("a"))["phase"] == "Succeeded"
    assert env.output("a") == " ".join([*arguments[:3], f"$(touch {created_file})"]) + "\n"
    assert not created_file.exists()


# --- scheduling and events -------------------------------------------------------------------------------------------------


async def test_pods_of_another_scheduler_are_scheduled_if_there_is_no_other(tmp_path: Path) -> None:
    async with embedded_node_env(PlainRuntime(rng=Random(3)), tmp_path, schedule_all=True) as env:
        await env.run_pod("a", pod(sh("true"), schedulerName=_OTHER_SCHEDULER))
        assert (await env.wait_finished("a"))["phase"] == "Succeeded"


async def test_pods_of_another_scheduler_are_ignored(tmp_path: Path) -> None:
    async with embedded_node_env(PlainRuntime(rng=Random(3)), tmp_path) as env:
        await env.run_pod("other", pod(sh("true"), schedulerName=_OTHER_SCHEDULER))
        await env.run_pod("own", pod(sh("true")))
        await env.wait_finished("own")
        assert all("nodeName" not in version["spec"] for version in env.history("other").versions)


async def test_events_of_the_same_second_are_listed_in_order(tmp_path: Path) -> None:
    async with embedded_node_env(PlainRuntime(rng=Random(3)), tmp_path) as env:
        await env.run_pod("a", pod(sh("true")))
        await env.wait_for_event("a", {"reason": "Started"})
        events: dict[str, Any] = await env.client.list(CORE_EVENTS, namespace=env.namespace)
        assert [event["reason"] for event in events["items"]] == ["Scheduled", "Pulled", "Created", "Started"]
