"""`dlop tensorboard` with a real TensorBoard in `dlop local`, and a job that writes real event files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlop.kube.types import JsonObject
from tests.local.cluster_commands import TIMEOUT_SECONDS, dlop, local_cluster, run, scalars

# The first test installs the package tensorboard.
pytestmark = pytest.mark.timeout(420)


def job(logs: Path, **tensorboard: Any) -> JsonObject:
    """A job whose TensorBoard reads the directory in which it writes. It runs until the directory has the file `stop`."""
    script = "python /app/curves.py /logs && until test -e /logs/stop; do sleep 0.1; done"
    mount = {"name": "logs", "mountPath": "/logs"}
    container = {"name": "jax", "image": "loss-curve:1", "command": ["sh", "-c", script], "volumeMounts": [mount]}
    volumes = [{"name": "logs", "hostPath": {"path": str(logs), "type": "DirectoryOrCreate"}}]
    worker = {"replicas": 1, "template": {"spec": {"containers": [container], "volumes": volumes}}}
    spec = {"jaxReplicaSpecs": {"Worker": worker}, "runPolicy": {"tensorBoard": {"logDir": "/logs", **tensorboard}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "curves"}, "spec": spec}


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)], ids=["namespaces", "plain processes"])
async def test_dlop_tensorboard_shows_the_scalars_of_a_job_and_opens_a_browser(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    logs, opened = tmp_path / "logs", tmp_path / "opened"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(logs)))
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    async with local_cluster(tmp_path, *isolation) as (_, kubeconfig):
        await run(kubeconfig, "submit", str(file))
        async with dlop(kubeconfig, "tensorboard", "curves", BROWSER=str(browser)) as command:
            url = (await command.line(r"^http://127\.0\.0\.1:\d+/default/curves/$"))[0]
            assert list((await scalars(url)).values()) == [{"loss": {"displayName": "", "description": ""}}]
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not opened.exists():  # noqa: ASYNC110 - another process writes the file
                    await asyncio.sleep(0.05)
            assert opened.read_text().strip() == url
            (logs / "stop").touch()
            await run(kubeconfig, "wait", "curves")
            assert list(await scalars(url)) == ["."]
            await run(kubeconfig, "delete", "curves")
            assert await command.end() == 1
        assert "JAXJob curves was deleted, and its TensorBoard with it" in command.text


async def test_dlop_tensorboard_ends_with_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job(tmp_path / "logs")))
    async with local_cluster(tmp_path) as (_, kubeconfig):
        await run(kubeconfig, "submit", str(file))
        async with dlop(kubeconfig, "tensorboard", "curves", "--no-browser") as command:
            url = (await command.line(r"^http://127\.0\.0\.1:\d+/default/curves/$"))[0]
            assert await scalars(url)
            command.process.send_signal(2)
            assert await command.end() == 130
        assert "Traceback" not in command.text
