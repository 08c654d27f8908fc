"""Jobs that the official client makes from a function or from an image. What was seen is printed as JSON.

`python -m tests.local.official_client.functions NAMESPACE PACKAGE_INDEX` plays it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient, models

from tests.local.official_client.acting import until, waits_for

IMAGE = "example.org/training:1"
TALKING_IMAGE = "example.org/talking:1"


def add_up(parameters: dict[str, int]) -> None:
    """Every process brings a number, the first one adds them up and tells all: the source of this is what pods run."""
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
                # Nobody says when a name is known and somebody listens there.
                assert time.monotonic() < deadline
                time.sleep(0.05)
        print(own, file=first, flush=True)
        total = int(first.readline())
    # In one piece, for the processes of a pod write to the same log.
    sys.stdout.write(f"{greeting.WORD} {os.environ['COLOUR']} {rank} of {size}: {total}\n")


def tell_task() -> None:
    """What TensorFlow would read."""
    import json
    import os

    config = json.loads(os.environ["TF_CONFIG"])
    print(config["task"]["type"], config["task"]["index"], "of", sorted(config["cluster"]))


def with_torchrun(training: TrainingClient, index: str) -> dict[str, Any]:
    """Two pods with two processes each, with everything that can be said about them."""
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
    seen = waits_for(training, "added", "Succeeded")
    return {"labels": seen.metadata.labels, "annotations": seen.metadata.annotations, "said": _said(training, "added", count=2)}


def of_tensorflow(namespace: str) -> dict[str, Any]:
    """A function that only Python runs, in three roles."""
    training = TrainingClient(namespace=namespace, job_kind="TFJob")
    roles = {"num_workers": 2, "num_chief_replicas": 1, "num_ps_replicas": 1}
    training.create_job(name="told", base_image=IMAGE, train_func=tell_task, **roles)
    waits_for(training, "told", "Succeeded")
    return {"said": _said(training, "told", count=4)}


def of_image(training: TrainingClient) -> dict[str, Any]:
    """An image that knows by itself what to run."""
    training.create_job(name="talking", base_image=TALKING_IMAGE, num_workers=1)
    waits_for(training, "talking", "Succeeded")
    return {"said": _said(training, "talking", count=1)}


def _said(training: TrainingClient, name: str, *, count: int) -> dict[str, list[str]]:
    """What the pods of a job have said when all have ended."""

    def all_ended() -> bool:
        return [pod.status.phase for pod in training.get_job_pods(name)] == ["Succeeded"] * count

    until(all_ended)
    logs, _ = training.get_job_logs(name, is_master=False)
    training.delete_job(name)
    return {pod: sorted(text.splitlines()) for pod, text in logs.items()}


def main(namespace: str, index: str) -> None:
    """Play it."""
    training = TrainingClient(namespace=namespace)
    seen = {"torchrun": with_torchrun(training, index), "tensorflow": of_tensorflow(namespace), "image": of_image(training)}
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
