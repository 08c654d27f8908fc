"""An unmodified kubectl with the kubeconfig of `dlop local`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from kubernetes_build import require_assets

from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.types import JsonObject
from tests.conformance.kubectl import Kubectl
from tests.conformance.support import Api, ApiServer
from tests.frameworks.paddle_manifests import sample
from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import TIMEOUT_SECONDS, leftover_files, start_local


@dataclass(frozen=True)
class KubectlEnv:
    """kubectl for a running `dlop local`."""

    kubectl: Kubectl
    folder: Path

    @asynccontextmanager
    async def stream_output(self, *words: str) -> AsyncIterator[asyncio.StreamReader]:
        """The output of a running kubectl command."""
        async with self.kubectl.start(*words) as process:
            assert process.stdout is not None
            yield process.stdout


@asynccontextmanager
async def local_cluster(folder: Path, *words: str) -> AsyncIterator[KubectlEnv]:
    """A `dlop local` without a job."""
    program = require_assets(("kubectl",))["kubectl"]
    async with start_local(*words, folder=folder) as dlop:
        kubeconfig = await dlop.kubeconfig()
        assert kubeconfig.stat().st_mode & 0o777 == 0o600
        client = Client(await connect(kubeconfig))
        try:
            server = ApiServer("local", client, compact=_do_nothing, kubeconfig=kubeconfig)
            yield KubectlEnv(Kubectl(program, Api(server, "default"), folder), folder)
        finally:
            await client.close()
        result = await dlop.wait_for_exit(signal.SIGINT)
        assert (result.code, result.err) == (130, "")
    assert leftover_files(folder) == []


async def _do_nothing() -> None:
    pass


async def read_until(stream: asyncio.StreamReader, *words: str) -> str:
    """Read up to a line with all these words."""
    output = ""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            line = (await stream.readline()).decode()
            assert line, f"the output ended without {words}: {output}"
            output += line
            if all(word in line for word in words):
                return output


async def test_kubectl_manages_a_job_from_apply_to_delete(tmp_path: Path) -> None:
    # The job runs until `exec` creates a file.
    script = "echo started; until test -e /tmp/go; do sleep 0.05; done; echo done"
    file = write_manifests(tmp_path, job("driven", scheduler=script, worker="trap exit TERM; sleep 1000 & wait"))
    async with local_cluster(tmp_path) as env:
        kubectl = env.kubectl
        watching = ("get", "--watch")
        async with env.stream_output(*watching, "pods") as pods, env.stream_output(*watching, "mxjobs.fioravanzo.org") as jobs:
            assert "mxjob.fioravanzo.org/driven created" in (await kubectl("apply", "-f", file)).out
            await read_until(pods, "driven-scheduler", "Running")
            await read_until(jobs, "driven", "Running")
            names = (await kubectl("get", "pods", "-o", "name")).out.split()
            scheduler = next(name for name in names if "scheduler" in name)
            async with env.stream_output("logs", "--follow", scheduler) as log:
                await read_until(log, "started")
                executed = await kubectl("exec", scheduler, "--", "hostname")
                assert executed.out.strip() == scheduler.removeprefix("pod/")
                # The exit code is not checked: the container may end first, and its processes are killed with it.
                await kubectl.run("exec", scheduler, "--", "touch", "/tmp/go")
                assert "done" in await read_until(log, "done")
                assert await asyncio.wait_for(log.read(), TIMEOUT_SECONDS) == b""
            await read_until(pods, "driven-scheduler", "Completed")
            await read_until(jobs, "driven", "Succeeded")
        described = (await kubectl("describe", "mxjobs.fioravanzo.org", "driven")).out
        assert "CreatedPods" in described
        of_pod = (await kubectl("describe", scheduler)).out
        assert "Successfully assigned default/driven-scheduler" in of_pod
        assert "Exit Code:    0" in of_pod
        assert "Scheduled" in (await kubectl("get", "events")).out
        assert 'mxjob.fioravanzo.org "driven" deleted' in (await kubectl("delete", "-f", file)).out
        await kubectl("wait", "--for=delete", *names, "--timeout=30s")
        assert (await kubectl("get", "pods")).out == ""


async def test_the_commands_in_the_documentation_of_the_early_paddle_operator_show_a_job(tmp_path: Path) -> None:
    (tmp_path / "paddle_k8s").write_text("#!/bin/sh\nexec sleep 1000\n")
    (tmp_path / "paddle_k8s").chmod(0o755)
    images = tmp_path / "images.yaml"
    images.write_text("images: [{name: 'example.org/fluid_job_train_test:*', files: {/usr/local/bin/paddle_k8s: paddle_k8s}}]")
    manifest = sample()
    manifest["metadata"]["namespace"] = "testspace"
    file = write_manifests(tmp_path, manifest)
    words = ("--kinds", "paddlejobs.paddlepaddle.org", "--images", str(images), "--cpus", "4")
    async with local_cluster(tmp_path, *words) as env:
        await env.kubectl("create", "namespace", "testspace")
        kubectl = replace(env.kubectl, api=Api(env.kubectl.api.server, "testspace"))
        assert (await kubectl("create", "-f", file)).out == "paddlejob.paddlepaddle.org/paddlejob created\n"
        await kubectl("wait", "--for=jsonpath={.status.phase}=running", "pj/paddlejob", f"--timeout={TIMEOUT_SECONDS:.0f}s")
        _, *pods = (await kubectl("get", "pods", "-l", "paddle-job-name=paddlejob")).table
        names = ("pserver-0", "pserver-1", "trainer-0", "trainer-1")
        assert [(row[0], row[2]) for row in pods] == [(f"paddlejob-{name}", "Running") for name in names]
        job = yaml.safe_load((await kubectl("get", "-o", "yaml", "PaddleJob", "paddlejob")).out)
        assert job["spec"] == manifest["spec"]
        assert job["status"]["phase"] == "running"
        assert (await kubectl("get", "pj")).table == [["NAME", "PHASE", "REASON", "AGE"], ["paddlejob", "running", "AGE"]]


async def test_a_pod_deleted_by_kubectl_is_created_again(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job("stubborn", scheduler="echo here; sleep 1000"))
    async with local_cluster(tmp_path) as env:
        kubectl = env.kubectl
        async with env.stream_output("get", "pods", "--watch") as pods:
            await kubectl("apply", "-f", file)
            await read_until(pods, "stubborn-scheduler", "Running")
            (name,) = (await kubectl("get", "pods", "-o", "name")).out.split()
            before = (await kubectl("get", name, "-o", "jsonpath={.metadata.uid}")).out
            await kubectl("delete", name, "--grace-period=1")
            await read_until(pods, "stubborn-scheduler", "Pending")
            await read_until(pods, "stubborn-scheduler", "Running")
        after = (await kubectl("get", name, "-o", "jsonpath={.metadata.uid}")).out
        assert after not in ("", before)


async def test_an_invalid_job_is_rejected_with_its_field(tmp_path: Path) -> None:
    invalid = job("invalid")
    invalid["spec"]["replicaSpecs"][0]["replicas"] = -1
    async with local_cluster(tmp_path) as env:
        assert "spec.replicaSpecs[0].replicas" in await env.kubectl.expect_failure("apply", "-f", write_manifests(tmp_path, invalid))


async def test_a_pod_without_a_job_runs_until_the_cluster_is_stopped(tmp_path: Path) -> None:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "echo hello; sleep 1000"]}
    pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": {"containers": [container]}}
    async with local_cluster(tmp_path, write_manifests(tmp_path, pod)) as env:
        async with env.stream_output("get", "pods", "--watch") as pods:
            await read_until(pods, "alone", "Running")
        assert (await env.kubectl("logs", "alone")).out == "hello\n"
