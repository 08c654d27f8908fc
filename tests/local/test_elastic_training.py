"""An elastic job trains with real processes while the autoscaler adds trainers and removes them for another job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from dlop.embedded.kubelet.image_map import Image
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.local.local_cluster_env import LocalClusterEnv, eventually, local_cluster_env

TIMEOUT_SECONDS = 60.0

# Asynchronous SGD with a parameter server. A trainer that is removed takes nothing with it.
PROGRAM = """#!/usr/bin/env python3
import http.server, json, os, pathlib, random, signal, sys, time, urllib.request

SHARED = pathlib.Path("{shared}")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


class Server(http.server.BaseHTTPRequestHandler):
    weights, steps = [0.0, 0.0], 0

    def do_POST(self):
        gradient = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Server.weights[:] = [weight - 0.05 * each for weight, each in zip(Server.weights, gradient)]
        Server.steps += 1
        (SHARED / "steps.new").write_text(str(Server.steps))
        (SHARED / "steps.new").rename(SHARED / "steps")
        done = (SHARED / "stop").exists()
        if done:
            (SHARED / "weights").write_text(json.dumps(Server.weights))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({{"weights": Server.weights, "done": done}}).encode())

    def log_message(self, *_):
        pass


def train(server):
    rng, gradient, answer = random.Random(os.environ["PADDLE_TRAINER_ID"]), [0.0, 0.0], {{"done": False}}
    while not answer["done"]:
        request = urllib.request.Request(server, json.dumps(gradient).encode(), method="POST")
        try:
            answer = json.load(urllib.request.urlopen(request, timeout=5))
        except OSError:
            time.sleep(0.1)
            continue
        x = [rng.uniform(-1, 1), rng.uniform(-1, 1)]
        error = sum(weight * each for weight, each in zip(answer["weights"], x)) - (2.0 * x[0] - 3.4 * x[1])
        gradient = [error * each for each in x]
        time.sleep(0.02)


if sys.argv[1] == "start_pserver":
    http.server.ThreadingHTTPServer(("", 7164), Server).serve_forever()
train("http://%s:7164" % os.environ["PADDLE_PSERVER_IPS"])
"""


def elastic_job() -> JsonObject:
    roles = {
        "pserver": {"min-instance": 1, "resources": {"requests": {"cpu": "100m"}}},
        "trainer": {"min-instance": 2, "max-instance": 6, "entrypoint": "train", "resources": {"requests": {"cpu": "1"}}},
    }
    spec = {"image": "elastic-sgd:1", **roles, "runPolicy": {"cleanPodPolicy": "Running"}}
    return {"apiVersion": "paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "elastic"}, "spec": spec}


def rigid_job(*, workers: int) -> JsonObject:
    container = {"name": "pytorch", "image": "none", "command": ["sleep", "1000"], "resources": {"requests": {"cpu": "1"}}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "rigid"}, "spec": spec}


async def until_pods(env: LocalClusterEnv, job: JobHandle, reached: Callable[[dict[str, Pod]], bool]) -> dict[str, Pod]:
    """Wait for a state of the pods of a job, by name."""
    pods: dict[str, Pod] = {}
    scope = WatchScope(resource=PODS, namespace=job.namespace)
    async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(list_and_watch(env.client, scope, Pod)) as changes:
        async for change_set in changes:
            for pod in change_set.deleted:
                pods.pop(pod.metadata.name, None)
            pods |= {pod.metadata.name: pod for pod in change_set.upserted if _belongs_to(pod, job)}
            if reached(pods):
                return pods
    raise AssertionError("the watch has ended")


def _belongs_to(pod: Pod, job: JobHandle) -> bool:
    return pod.metadata.controller is not None and pod.metadata.controller.uid == job.uid


def all_run(*, trainers: int) -> Callable[[dict[str, Pod]], bool]:
    names = {"elastic-pserver-0", *(f"elastic-trainer-{index}" for index in range(trainers))}
    return lambda pods: pods.keys() == names and all(pod.status.phase == "Running" for pod in pods.values())


async def test_a_job_scales_from_two_to_six_trainers_and_back_while_it_trains(tmp_path: Path) -> None:
    shared, program = tmp_path / "shared", tmp_path / "paddle_k8s"
    shared.mkdir()
    program.write_text(PROGRAM.format(shared=shared))
    program.chmod(0o755)
    image = Image(name="elastic-sgd:*", files={"/usr/local/bin/paddle_k8s": program})
    mounts = [Mount.at_same_path(shared)]
    async with local_cluster_env(tmp_path / "cluster", images=[image], mounts=mounts, cpus=8, autoscaler=True) as env:
        job = await env.submit(elastic_job())
        first = await until_pods(env, job, all_run(trainers=2))
        grown = await until_pods(env, job, all_run(trainers=6))
        rigid = await env.submit(rigid_job(workers=5))
        await until_pods(env, rigid, lambda pods: len(pods) == 5 and all(pod.status.phase == "Running" for pod in pods.values()))
        shrunk = await until_pods(env, job, all_run(trainers=2))
        for pods in (grown, shrunk):
            assert {name: pods[name].metadata.uid for name in first} == {name: pod.metadata.uid for name, pod in first.items()}
        assert [container.restart_count for pod in shrunk.values() for container in pod.status.container_statuses] == [0, 0, 0]
        steps = int((shared / "steps").read_text())
        await eventually(lambda: int((shared / "steps").read_text()) > steps + 100, details=lambda: (shared / "steps").read_text())
        (shared / "stop").touch()
        await env.wait_until_succeeded(job)
    weights = [float(word) for word in (shared / "weights").read_text().strip("[]").split(",")]
    assert abs(weights[0] - 2.0) < 0.05
    assert abs(weights[1] + 3.4) < 0.05
