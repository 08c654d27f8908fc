"""A job whose replica fails once and is restarted, with the official client.

Run with `python -m tests.local.official_client.restart NAMESPACE`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubeflow.training import TrainingClient

from tests.local.official_client.helpers import release, wait_for_conditions, wait_until
from tests.local.official_client.jobs import ENDING, WAITING, job

NAME = "again"


def main(namespace: str) -> None:
    """Every attempt waits in its init container until it is released, so that no state of the job is missed."""
    training = TrainingClient(namespace=namespace)
    body = job("PyTorchJob", NAME, ENDING, init=WAITING, restart_policy="ExitCode")
    del body.spec.pytorch_replica_specs["Worker"]
    training.create_job(body)
    first = _waiting_pod(training, before="")
    release(namespace, first.metadata.name, "first", exit_code=130)
    wait_for_conditions(training, NAME, "Restarting")
    second = _waiting_pod(training, before=first.metadata.uid)
    restarting = training.is_job_restarting(NAME)
    release(namespace, second.metadata.name, "first")
    wait_for_conditions(training, NAME, "Succeeded")
    logs, _ = training.get_job_logs(NAME)
    training.delete_job(NAME)
    print(json.dumps({"restarting": restarting, "names": [first.metadata.name, second.metadata.name], "logs": logs}))


def _waiting_pod(training: TrainingClient, *, before: str) -> Any:
    """The waiting pod whose uid is not `before`."""

    def find_waiting() -> Any:
        for pod in training.get_job_pods(NAME):
            statuses = pod.status.init_container_statuses or []
            if pod.metadata.uid != before and any(status.state.running for status in statuses):
                return pod
        return None

    return wait_until(find_waiting)


if __name__ == "__main__":
    main(*sys.argv[1:])
