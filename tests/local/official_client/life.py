"""The life of one job of one kind, through the official client. What was seen is printed as JSON.

`python -m tests.local.official_client.life NAMESPACE KIND` plays it.
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

from tests.local.official_client.acting import PATIENCE_SECONDS, refusal, release, until, until_all_run, waits_for
from tests.local.official_client.jobs import FAILING, HELD, ROLES, container_of, job, replica_specs


class Life:
    """One job from its creation to its end."""

    def __init__(self, namespace: str, kind: str) -> None:
        self.namespace = namespace
        self.kind = kind
        self.name = f"{kind.lower()}-held"
        self.count = sum(ROLES[kind].values())
        self.training = TrainingClient(namespace=namespace, job_kind=kind)

    def create(self) -> dict[str, Any]:
        """Make it, and look at it in all ways that there are."""
        self.training.create_job(job(self.kind, self.name, HELD))
        got = self.training.get_job(self.name)
        return {
            "listed": [each.metadata.name for each in self.training.list_jobs()],
            "kind": got.kind,
            "type": type(got).__name__,
            "replicas": {role: spec.replicas for role, spec in replica_specs(got).items()},
        }

    def run(self) -> dict[str, Any]:
        """Wait until it runs, and look at its pods."""
        seen = waits_for(self.training, self.name, "Running")
        until_all_run(self.training, self.name, count=self.count)
        names = self.training.get_job_pod_names
        return {
            "conditions": [each.type for each in seen.status.conditions],
            "is": self.states(),
            "pods": sorted(names(self.name)),
            "masters": names(self.name, is_master=True),
            "workers": sorted(names(self.name, replica_type="worker")),
            "first worker": names(self.name, replica_type="worker", replica_index=0),
        }

    def suspend(self) -> dict[str, Any]:
        """Patch it to rest until its pods are gone, and then to go on."""
        self.update(suspend=True)
        until(lambda: not self.training.get_job_pod_names(self.name))
        resting = self.states()
        self.update(suspend=False)
        waits_for(self.training, self.name, "Running")
        until_all_run(self.training, self.name, count=self.count)
        return {"resting": resting, "again": self.states()}

    def update(self, *, suspend: bool) -> None:
        """Get it, change it, send it back: the way in which people patch with this client.

        Its status may have changed in between, which is a conflict, and then it is done again.
        """

        def sent() -> bool:
            got = self.training.get_job(self.name)
            got.metadata.labels = {"suspended": str(suspend).lower()}
            got.spec.run_policy.suspend = suspend
            try:
                self.training.update_job(got, self.name)
            except RuntimeError as error:
                if "(409)" not in str(error):
                    raise
                return False
            return True

        until(sent)

    def finish(self) -> dict[str, Any]:
        """Follow the log of a job that is told to end only when the first line is here."""
        shown = Shown("begun in")
        with contextlib.redirect_stdout(shown), ThreadPoolExecutor(1) as pool:
            following = pool.submit(self.training.get_job_logs, self.name, follow=True)
            while not shown.heard.wait(0.1) and not following.done():
                pass
            self.release_all()
            followed, _ = following.result(PATIENCE_SECONDS)
        seen = waits_for(self.training, self.name, "Succeeded")
        return {
            "followed": followed,
            "shown": shown.getvalue(),
            "conditions": [(each.type, each.status) for each in seen.status.conditions],
            "is": self.states(),
            "succeeded": {role: each.succeeded for role, each in seen.status.replica_statuses.items()},
            "completed": seen.status.completion_time is not None,
        }

    def release_all(self) -> None:
        """Tell every pod to end."""
        for pod in self.training.get_job_pods(self.name):
            release(self.namespace, pod.metadata.name, container_of(self.kind))

    def logs(self) -> dict[str, Any]:
        """What all pods have said, and what was said about them."""
        until(lambda: {pod.status.phase for pod in self.training.get_job_pods(self.name)} == {"Succeeded"})
        of_master, _ = self.training.get_job_logs(self.name)
        logs, _ = self.training.get_job_logs(self.name, is_master=False)
        wanted = {f"{self.kind.lower()}/{self.name}", *(f"pod/{pod}" for pod in logs)}

        def all_events() -> dict[str, list[str]]:
            events = self.training.get_job_logs(self.name, is_master=False, verbose=True)[1]
            return events if wanted <= set(events) else {}

        events = until(all_events)
        return {"master": of_master, "all": logs, "events": {key: sorted(told[20:] for told in each) for key, each in events.items()}}

    def delete(self) -> dict[str, Any]:
        """It and its pods are gone, and the client says so."""
        self.training.delete_job(self.name)
        until(lambda: not self.training.get_job_pod_names(self.name))
        return {
            "listed": [each.metadata.name for each in self.training.list_jobs()],
            "get": refusal(lambda: self.training.get_job(self.name)),
            "delete": refusal(lambda: self.training.delete_job(self.name)),
        }

    def fail(self) -> dict[str, Any]:
        """Another job, which fails."""
        self.name = f"{self.kind.lower()}-failing"
        self.training.create_job(job(self.kind, self.name, FAILING, others=HELD))
        seen = waits_for(self.training, self.name, "Failed")
        told = refusal(lambda: waits_for(self.training, self.name, "Succeeded"))
        # One of several leaders may have failed before the first has begun.
        logs = until(lambda: self.training.get_job_logs(self.name)[0])
        is_now = self.states(seen)
        self.training.delete_job(self.name, delete_options=models.V1DeleteOptions(propagation_policy="Foreground"))
        until(lambda: not self.training.list_jobs())
        return {"is": is_now, "told": told, "logs": logs, "pods": self.training.get_job_pod_names(self.name)}

    def states(self, seen: Any = None) -> list[str]:
        """All that the client says the job is."""
        asked = ("created", "running", "restarting", "succeeded", "failed")
        about = {"name": self.name} if seen is None else {"job": seen}
        return [word for word in asked if getattr(self.training, f"is_job_{word}")(**about)]


class Shown(io.StringIO):
    """What is printed, and a sign that something has been."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.heard = threading.Event()
        self._wanted = wanted

    def write(self, text: str) -> int:
        if self._wanted in text:
            self.heard.set()
        return super().write(text)


def main(namespace: str, kind: str) -> None:
    """Play it."""
    life = Life(namespace, kind)
    steps = (life.create, life.run, life.suspend, life.finish, life.logs, life.delete, life.fail)
    print(json.dumps({step.__name__: step() for step in steps}))


if __name__ == "__main__":
    main(*sys.argv[1:])
