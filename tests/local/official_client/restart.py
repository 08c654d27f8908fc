"""A job whose replica fails once and is made anew, through the official client.

`python -m tests.local.official_client.restart NAMESPACE` plays it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient

from tests.local.official_client.acting import release, until, waits_for
from tests.local.official_client.jobs import ENDING, WAITING, job

NAME = "again"


def main(namespace: str) -> None:
    """Play it. Every attempt waits in its init container until it is told to go on, so that no state of the job is missed."""
    training = TrainingClient(namespace=namespace)
    wanted = job("PyTorchJob", NAME, ENDING, init=WAITING, restart_policy="ExitCode")
    del wanted.spec.pytorch_replica_specs["Worker"]
    training.create_job(wanted)
    first = _waiting_pod(training, before="")
    release(namespace, first.metadata.name, "first", exit_code=130)
    waits_for(training, NAME, "Restarting")
    second = _waiting_pod(training, before=first.metadata.uid)
    restarting = training.is_job_restarting(NAME)
    release(namespace, second.metadata.name, "first")
    waits_for(training, NAME, "Succeeded")
    said, _ = training.get_job_logs(NAME)
    training.delete_job(NAME)
    print(json.dumps({"restarting": restarting, "names": [first.metadata.name, second.metadata.name], "said": said}))


def _waiting_pod(training: TrainingClient, *, before: str) -> Any:
    """The pod that waits to be released, and is not the one of before."""

    def waiting() -> Any:
        for pod in training.get_job_pods(NAME):
            statuses = pod.status.init_container_statuses or []
            if pod.metadata.uid != before and any(each.state.running for each in statuses):
                return pod
        return None

    return until(waiting)


if __name__ == "__main__":
    main(*sys.argv[1:])
