"""Jobs that the official client creates from a function or an image. Prints the observations as JSON.

Run with `python -m tests.local.official_client.functions NAMESPACE PACKAGE_INDEX`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient, models

from tests.local.official_client.helpers import wait_for_conditions, wait_until

IMAGE = "example.org/training:1"
ECHO_IMAGE = "example.org/echo:1"


def add_up(parameters: dict[str, int]) -> None:
    """Every process sends a number to rank 0, which returns the sum. Pods run the source of this function."""
    import os
    import socket
    import sys
    import time

    import greeting

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    own = (rank + 1) * parameters["factor"]
    if rank == 0:
        with socket.create_server(("", address[1])) as server:
            others = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
        total = own + sum(int(other.readline()) for other in others)
        for other in others:
            print(total, file=other, flush=True)
    else:
        deadline = time.monotonic() + 60
        while True:
            try:
                first = socket.create_connection(address).makefile("rw")
                break
            except OSError:
                # The name may not exist yet, or the server may not listen yet.
                assert time.monotonic() < deadline
                time.sleep(0.05)
        print(own, file=first, flush=True)
        total = int(first.readline())
    # In one write, because the processes of a pod share a log.
    sys.stdout.write(f"{greeting.WORD} {os.environ['COLOUR']} {rank} of {size}: {total}\n")


def print_task() -> None:
    """Print the task of TF_CONFIG."""
    import json
    import os

    config = json.loads(os.environ["TF_CONFIG"])
    print(config["task"]["type"], config["task"]["index"], "of", sorted(config["cluster"]))


def run_torchrun(training: TrainingClient, index: str) -> dict[str, Any]:
    """Two pods with two processes each, with all options of the client."""
    packages = models.V1Volume(name="packages", empty_dir=models.V1EmptyDirVolumeSource())
    training.create_job(
        name="added",
        base_image=IMAGE,
        train_func=add_up,
        parameters={"factor": 7},
        num_workers=2,
        num_procs_per_worker=2,
        resources_per_worker={"cpu": "0.1", "memory": "256Mi"},
        packages_to_install=["greeting"],
        pip_index_url=index,
        env_vars={"COLOUR": "blue", "PIP_TARGET": "/packages", "PYTHONPATH": "/packages", "PIP_NO_CACHE_DIR": "1"},
        volumes=[packages],
        volume_mounts=[models.V1VolumeMount(name="packages", mount_path="/packages")],
        labels={"team": "vision"},
        annotations={"note": "first"},
        queue_name="nightly",
    )
    job = wait_for_conditions(training, "added", "Succeeded")
    return {"labels": job.metadata.labels, "annotations": job.metadata.annotations, "logs": _collect_logs(training, "added", count=2)}


def run_tensorflow(namespace: str) -> dict[str, Any]:
    """A function without torchrun, in three roles."""
    training = TrainingClient(namespace=namespace, job_kind="TFJob")
    roles = {"num_workers": 2, "num_chief_replicas": 1, "num_ps_replicas": 1}
    training.create_job(name="tasks", base_image=IMAGE, train_func=print_task, **roles)
    wait_for_conditions(training, "tasks", "Succeeded")
    return {"logs": _collect_logs(training, "tasks", count=4)}


def run_image(training: TrainingClient) -> dict[str, Any]:
    """An image with a default command."""
    training.create_job(name="echo", base_image=ECHO_IMAGE, num_workers=1)
    wait_for_conditions(training, "echo", "Succeeded")
    return {"logs": _collect_logs(training, "echo", count=1)}


def _collect_logs(training: TrainingClient, name: str, *, count: int) -> dict[str, list[str]]:
    """The sorted log lines of all pods of a job that have succeeded. Deletes the job."""

    def all_succeeded() -> bool:
        return [pod.status.phase for pod in training.get_job_pods(name)] == ["Succeeded"] * count

    wait_until(all_succeeded)
    logs, _ = training.get_job_logs(name, is_master=False)
    training.delete_job(name)
    return {pod: sorted(text.splitlines()) for pod, text in logs.items()}


def main(namespace: str, index: str) -> None:
    training = TrainingClient(namespace=namespace)
    observations = {"torchrun": run_torchrun(training, index), "tensorflow": run_tensorflow(namespace), "image": run_image(training)}
    print(json.dumps(observations))


if __name__ == "__main__":
    main(*sys.argv[1:])
