"""The lifecycle of a job of one kind with the official client. Prints the observations as JSON.

Run with `python -m tests.local.official_client.lifecycle NAMESPACE KIND`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubeflow.training import TrainingClient, models

from tests.local.official_client.helpers import TIMEOUT_SECONDS, error_message, release, wait_for_conditions, wait_until, wait_until_all_run
from tests.local.official_client.jobs import FAILING, HELD, ROLES, container_of, job, replica_specs


class JobLifecycle:
    """One job from its creation to its deletion."""

    def __init__(self, namespace: str, kind: str) -> None:
        self.namespace = namespace
        self.kind = kind
        self.name = f"{kind.lower()}-held"
        self.count = sum(ROLES[kind].values())
        self.training = TrainingClient(namespace=namespace, job_kind=kind)

    def create(self) -> dict[str, Any]:
        """Create, list and get the job."""
        self.training.create_job(job(self.kind, self.name, HELD))
        created = self.training.get_job(self.name)
        return {
            "listed": [item.metadata.name for item in self.training.list_jobs()],
            "kind": created.kind,
            "type": type(created).__name__,
            "replicas": {role: spec.replicas for role, spec in replica_specs(created).items()},
        }

    def run(self) -> dict[str, Any]:
        """Wait until the job runs, and list its pods."""
        running = wait_for_conditions(self.training, self.name, "Running")
        wait_until_all_run(self.training, self.name, count=self.count)
        names = self.training.get_job_pod_names
        return {
            "conditions": [condition.type for condition in running.status.conditions],
            "is": self.states(),
            "pods": sorted(names(self.name)),
            "masters": names(self.name, is_master=True),
            "workers": sorted(names(self.name, replica_type="worker")),
            "first worker": names(self.name, replica_type="worker", replica_index=0),
        }

    def suspend(self) -> dict[str, Any]:
        """Suspend the job until its pods are deleted, and resume it."""
        self.update(suspend=True)
        wait_until(lambda: not self.training.get_job_pod_names(self.name))
        suspended = self.states()
        self.update(suspend=False)
        wait_for_conditions(self.training, self.name, "Running")
        wait_until_all_run(self.training, self.name, count=self.count)
        return {"suspended": suspended, "resumed": self.states()}

    def update(self, *, suspend: bool) -> None:
        """Get, change and update the job. It is repeated after a conflict with a status update."""

        def update_once() -> bool:
            current = self.training.get_job(self.name)
            current.metadata.labels = {"suspended": str(suspend).lower()}
            current.spec.run_policy.suspend = suspend
            try:
                self.training.update_job(current, self.name)
            except RuntimeError as error:
                if "(409)" not in str(error):
                    raise
                return False
            return True

        wait_until(update_once)

    def finish(self) -> dict[str, Any]:
        """Follow the log, and release the pods when the first line has arrived."""
        output = CapturedOutput("started in")
        with contextlib.redirect_stdout(output), ThreadPoolExecutor(1) as pool:
            following = pool.submit(self.training.get_job_logs, self.name, follow=True)
            while not output.seen_text.wait(0.1) and not following.done():
                pass
            self.release_all()
            followed, _ = following.result(TIMEOUT_SECONDS)
        succeeded = wait_for_conditions(self.training, self.name, "Succeeded")
        return {
            "followed": followed,
            "printed": output.getvalue(),
            "conditions": [(condition.type, condition.status) for condition in succeeded.status.conditions],
            "is": self.states(),
            "succeeded": {role: status.succeeded for role, status in succeeded.status.replica_statuses.items()},
            "completed": succeeded.status.completion_time is not None,
        }

    def release_all(self) -> None:
        for pod in self.training.get_job_pods(self.name):
            release(self.namespace, pod.metadata.name, container_of(self.kind))

    def logs(self) -> dict[str, Any]:
        """The logs and events of all pods."""
        wait_until(lambda: {pod.status.phase for pod in self.training.get_job_pods(self.name)} == {"Succeeded"})
        master_log, _ = self.training.get_job_logs(self.name)
        logs, _ = self.training.get_job_logs(self.name, is_master=False)
        subjects = {f"{self.kind.lower()}/{self.name}", *(f"pod/{pod}" for pod in logs)}

        def all_events() -> dict[str, list[str]]:
            events = self.training.get_job_logs(self.name, is_master=False, verbose=True)[1]
            return events if subjects <= set(events) else {}

        events = wait_until(all_events)
        messages = {subject: sorted(line[20:] for line in lines) for subject, lines in events.items()}
        return {"master": master_log, "all": logs, "events": messages}

    def delete(self) -> dict[str, Any]:
        """Delete the job, and check that it does not exist."""
        self.training.delete_job(self.name)
        wait_until(lambda: not self.training.get_job_pod_names(self.name))
        return {
            "listed": [item.metadata.name for item in self.training.list_jobs()],
            "get": error_message(lambda: self.training.get_job(self.name)),
            "delete": error_message(lambda: self.training.delete_job(self.name)),
        }

    def fail(self) -> dict[str, Any]:
        """Run another job that fails."""
        self.name = f"{self.kind.lower()}-failing"
        self.training.create_job(job(self.kind, self.name, FAILING, others=HELD))
        failed = wait_for_conditions(self.training, self.name, "Failed")
        message = error_message(lambda: wait_for_conditions(self.training, self.name, "Succeeded"))
        # One of several leaders may fail before the first one has started.
        logs = wait_until(lambda: self.training.get_job_logs(self.name)[0])
        states = self.states(failed)
        self.training.delete_job(self.name, delete_options=models.V1DeleteOptions(propagation_policy="Foreground"))
        wait_until(lambda: not self.training.list_jobs())
        return {"is": states, "error": message, "logs": logs, "pods": self.training.get_job_pod_names(self.name)}

    def states(self, job: Any = None) -> list[str]:
        """The states that the client reports."""
        states = ("created", "running", "restarting", "succeeded", "failed")
        arguments = {"name": self.name} if job is None else {"job": job}
        return [state for state in states if getattr(self.training, f"is_job_{state}")(**arguments)]


class CapturedOutput(io.StringIO):
    """Captures output, and sets an event when a text is printed."""

    def __init__(self, expected: str) -> None:
        super().__init__()
        self.seen_text = threading.Event()
        self._expected = expected

    def write(self, text: str) -> int:
        if self._expected in text:
            self.seen_text.set()
        return super().write(text)


def main(namespace: str, kind: str) -> None:
    lifecycle = JobLifecycle(namespace, kind)
    steps = (lifecycle.create, lifecycle.run, lifecycle.suspend, lifecycle.finish, lifecycle.logs, lifecycle.delete, lifecycle.fail)
    print(json.dumps({step.__name__: step() for step in steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
