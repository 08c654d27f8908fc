"""Helpers of the scenarios: polling, waiting for conditions, and releasing pods."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from kubeflow.training import TrainingClient
from kubernetes import client
from kubernetes.stream import stream

# Long, because the real garbage collector discovers new kinds only twice a minute.
TIMEOUT_SECONDS = 120.0
POLL_SECONDS = 0.1

T = TypeVar("T")


def wait_until(check: Callable[[], T]) -> T:
    """Poll until a check returns a true value, and return it."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (result := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was never met: {check.__qualname__}")
        time.sleep(POLL_SECONDS)
    return result


def wait_for_conditions(training: TrainingClient, name: str, *conditions: str) -> Any:
    """Wait with the client until one of the conditions is met, and return the job."""
    expected = set(conditions)
    return training.wait_for_job_conditions(name, expected_conditions=expected, wait_timeout=TIMEOUT_SECONDS, polling_interval=POLL_SECONDS)


def wait_until_all_run(training: TrainingClient, name: str, *, count: int) -> None:
    """Wait until all pods of a job run. The condition Running is met as soon as one of them runs."""

    def all_run() -> bool:
        phases = [pod.status.phase for pod in training.get_job_pods(name)]
        return len(phases) == count and set(phases) == {"Running"}

    wait_until(all_run)


def release(namespace: str, pod: str, container: str, *, exit_code: int = 0) -> None:
    """Release a container that waits for `/hold/code`. The stream needs its own API client."""
    api = client.CoreV1Api(client.ApiClient())
    # The rename is atomic.
    command = ["sh", "-c", f"echo {exit_code} > /hold/new && mv /hold/new /hold/code"]
    stream(api.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=command, stdout=True, stderr=True)


def error_message(action: Callable[[], object]) -> str:
    """The error message of an action of the client.

    Raises:
        AssertionError: the action succeeded.
    """
    try:
        action()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("the action should have failed")
