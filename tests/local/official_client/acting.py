"""What every story does: look until something is so, and tell a held pod to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from kubeflow.training import TrainingClient
from kubernetes import client
from kubernetes.stream import stream

# Long, for the real garbage collector looks for new kinds of owners only twice a minute.
PATIENCE_SECONDS = 120.0
BETWEEN_LOOKS_SECONDS = 0.1

T = TypeVar("T")


def until(look: Callable[[], T]) -> T:
    """What a look shows, once it shows something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"it was never so: {look.__qualname__}")
        time.sleep(BETWEEN_LOOKS_SECONDS)
    return found


def waits_for(training: TrainingClient, name: str, *conditions: str) -> Any:
    """The job, once the client says that one of the conditions holds."""
    expected = set(conditions)
    return training.wait_for_job_conditions(
        name, expected_conditions=expected, wait_timeout=PATIENCE_SECONDS, polling_interval=BETWEEN_LOOKS_SECONDS
    )


def until_all_run(training: TrainingClient, name: str, *, count: int) -> None:
    """Wait for the pods of a job: it is called running as soon as one is."""

    def all_run() -> bool:
        phases = [pod.status.phase for pod in training.get_job_pods(name)]
        return len(phases) == count and set(phases) == {"Running"}

    until(all_run)


def release(namespace: str, pod: str, container: str, *, exit_code: int = 0) -> None:
    """Let a held container go on. The client of a stream is its own: while it is used it can do nothing else."""
    api = client.CoreV1Api(client.ApiClient())
    # The file is there all at once, or not at all.
    command = ["sh", "-c", f"echo {exit_code} > /hold/new && mv /hold/new /hold/code"]
    stream(api.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=command, stdout=True, stderr=True)


def refusal(act: Callable[[], object]) -> str:
    """What the client says when something does not work.

    Raises:
        AssertionError: it worked.
    """
    try:
        act()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it should not have worked")
