"""`dlop tensorboard` and `dlop describe` for jobs with a TensorBoard, as a user runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from dlop.kube.resources import PODS
from tests.sim.cli_env import CliEnv, cli_env
from tests.sim.crew_job import crew, mpba_mxjob

pytestmark = pytest.mark.machine


@pytest.fixture
async def env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[CliEnv]:
    async with cli_env(tmp_path, capsys) as environment:
        yield environment


_LOGS = {"tensorBoard": {"logDir": "/logs"}}


async def test_tensorboard_says_how_to_add_one_to_a_job_without(env: CliEnv) -> None:
    await env.kit.submit(crew("one"))
    await env.kit.submit(mpba_mxjob("two"))
    result = await env.dlop("tensorboard", "one")
    assert (result.code, result.out) == (1, "")
    assert """kubectl patch crewjobs.crew.dlop.dev/one -n default --type merge -p '{"spec": {"runPolicy":""" in result.err
    result = await env.dlop("tensorboard", "two")
    assert 'kubectl annotate mxjobs.mpba.fbk.eu/two -n default kubedl.io/tensorboard-config=\'{"logDir":' in result.err


async def test_tensorboard_waits_until_the_pod_is_ready_and_prints_the_address_once(env: CliEnv) -> None:
    env.kit.script.when("one-tensorboard-0").run(ready=False).until_released().become_ready()
    await env.kit.submit(crew("one", policy=_LOGS))
    async with env.run_in_background("tensorboard", "one", "--no-browser") as command:
        await command.wait_for_output("waiting for the TensorBoard of CrewJob one: pod one-tensorboard-0 is not ready: it is starting")
        env.kit.kubelet.release("default/one-tensorboard-0")
        await command.wait_for_output(r"http://127\.0\.0\.1:\d+/default/one/")
        await env.kit.client.delete(PODS, "one-tensorboard-0", namespace="default")
        await command.wait_for_output("not ready")
        env.kit.kubelet.release("default/one-tensorboard-0")
        await command.wait_for_output("the TensorBoard of CrewJob one is ready again")
        await env.delete_job("one")
        await command.wait_for_output("dlop tensorboard: CrewJob one was deleted, and its TensorBoard with it")
    lines = command.text.splitlines()
    assert command.text.count("http://") == 1
    assert [line for line, following in pairwise(lines) if line == following] == []


async def test_tensorboard_reports_a_port_that_is_in_use(env: CliEnv) -> None:
    await env.kit.submit(crew("one", policy=_LOGS))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    result = await env.dlop("tensorboard", "one", "--port", str(port))
    server.close()
    await server.wait_closed()
    assert result.code == 1
    assert f"cannot listen on port {port}: " in result.err
    assert "choose another one with --port" in result.err
    assert (await env.dlop("tensorboard", "one", "--port", "0x1")).code == 2


async def test_the_views_of_a_job_do_not_contain_its_tensorboard(env: CliEnv) -> None:
    await submit_with_tensorboard(env)
    for command in ("get", "logs"):
        result = await env.dlop(command, *([] if command == "get" else ["one"]))
        assert (result.code, "tensorboard" in result.out) == (0, False)
    replicas = (await env.dlop("describe", "one", "-o", "json")).json["job"]["replicas"]
    assert [replica["pod"] for replica in replicas] == ["one-chief-0", "one-worker-0", "one-worker-1"]


async def test_describe_shows_the_tensorboard_of_a_job(env: CliEnv) -> None:
    await submit_with_tensorboard(env)
    page = (await env.dlop("describe", "one")).out
    assert page.partition("TensorBoard\n")[2].partition("\n\nHistory\n")[0].splitlines() == [
        "  State:        ready",
        "  Pod:          one-tensorboard-0",
        "  Open:         dlop tensorboard one -n default",
        "  Kept until:   1h after the end of the job",
    ]
    described = (await env.dlop("describe", "one", "-o", "json")).json
    assert described["cron"] is None
    assert described["tensorBoard"] == {
        "isReady": True,
        "message": "",
        "pod": "one-tensorboard-0",
        "command": "dlop tensorboard one -n default",
        "address": "",
        "ingressProblem": "",
        "ttlSeconds": 3600,
        "deletedAt": "",
    }


async def submit_with_tensorboard(env: CliEnv) -> None:
    job = await env.kit.submit(crew("one", policy=_LOGS))
    await env.kit.until(job, reached=lambda job: job.pod_phases.get("one-tensorboard-0") == "Running", within_seconds=30)
