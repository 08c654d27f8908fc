"""The life of an MXJob, through the plain Kubernetes client: the official client of these days has forgotten the kind.

`python -m tests.local.official_client.mxjob NAMESPACE` plays it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubernetes import client, config, watch

from tests.local.official_client.acting import PATIENCE_SECONDS, release, until
from tests.local.official_client.jobs import API_VERSION, HELD, pod_template

NAME = "mxjob-held"
LEADER = f"{NAME}-scheduler-0"

_GROUP, _VERSION, _PLURAL = "kubeflow.org", "v1", "mxjobs"


class MXJobs:
    """The MXJobs of a namespace."""

    def __init__(self, namespace: str) -> None:
        config.load_kube_config()
        self.namespace = namespace
        self.pods = client.CoreV1Api()
        self._api = client.CustomObjectsApi()
        self._place = (_GROUP, _VERSION, namespace, _PLURAL)

    def create(self) -> dict[str, Any]:
        """Make one and look at it."""
        self._api.create_namespaced_custom_object(*self._place, _mxjob())
        listed = self._api.list_namespaced_custom_object(*self._place)
        return {"listed": [each["metadata"]["name"] for each in listed["items"]], "kind": self.get()["kind"]}

    def get(self) -> Any:
        """The job as it is."""
        return self._api.get_namespaced_custom_object(*self._place, NAME)

    def patch(self, **run_policy: Any) -> None:
        """Change its run policy."""
        self._api.patch_namespaced_custom_object(*self._place, NAME, {"spec": {"runPolicy": run_policy}})

    def waits_for(self, condition: str) -> list[str]:
        """Watch until a condition holds, and say which ones do then."""
        watching = watch.Watch()
        within = {"timeout_seconds": int(PATIENCE_SECONDS), "field_selector": f"metadata.name={NAME}"}
        for news in watching.stream(self._api.list_namespaced_custom_object, *self._place, **within):
            conditions = news["object"].get("status", {}).get("conditions", [])
            holding = [each["type"] for each in conditions if each["status"] == "True"]
            if condition in holding:
                watching.stop()
                return holding
        raise TimeoutError(f"the job was never {condition}")

    def pod_phases(self) -> dict[str, str]:
        """Its pods."""
        found = self.pods.list_namespaced_pod(self.namespace, label_selector=f"training.kubeflow.org/job-name={NAME}")
        return {pod.metadata.name: pod.status.phase for pod in found.items}

    def delete(self) -> list[str]:
        """It and its pods are gone."""
        self._api.delete_namespaced_custom_object(*self._place, NAME)
        until(lambda: not self.pod_phases())
        return [each["metadata"]["name"] for each in self._api.list_namespaced_custom_object(*self._place)["items"]]


def _mxjob() -> Any:
    template = client.ApiClient().sanitize_for_serialization(pod_template("mxnet", HELD))
    roles = {role: {"replicas": 1, "restartPolicy": "Never", "template": template} for role in ("Scheduler", "Server", "Worker")}
    spec = {"jobMode": "MXTrain", "runPolicy": {"cleanPodPolicy": "None"}, "mxReplicaSpecs": roles}
    return {"apiVersion": API_VERSION, "kind": "MXJob", "metadata": {"name": NAME}, "spec": spec}


def main(namespace: str) -> None:
    """Play it."""
    jobs = MXJobs(namespace)
    seen: dict[str, Any] = {"create": jobs.create(), "running": jobs.waits_for("Running")}
    until(lambda: set(jobs.pod_phases().values()) == {"Running"})
    seen["pods"] = sorted(jobs.pod_phases())
    jobs.patch(suspend=True)
    seen["suspended"] = jobs.waits_for("Suspended")
    until(lambda: not jobs.pod_phases())
    jobs.patch(suspend=False)
    seen["again"] = jobs.waits_for("Running")
    until(lambda: len(jobs.pod_phases()) == len(seen["pods"]) and set(jobs.pod_phases().values()) == {"Running"})
    for pod in seen["pods"]:
        release(namespace, pod, "mxnet")
    seen["succeeded"] = jobs.waits_for("Succeeded")
    seen["log"] = jobs.pods.read_namespaced_pod_log(LEADER, namespace, container="mxnet")
    seen["left"] = jobs.delete()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
