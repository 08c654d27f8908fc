"""The lifecycle of an MXJob with the Kubernetes client. The official client no longer supports the kind.

Run with `python -m tests.local.official_client.mxjob NAMESPACE`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubernetes import client, config, watch

from tests.local.official_client.helpers import TIMEOUT_SECONDS, release, wait_until
from tests.local.official_client.jobs import API_VERSION, HELD, pod_template

NAME = "mxjob-held"
LEADER = f"{NAME}-scheduler-0"

_GROUP, _VERSION, _PLURAL = "kubeflow.org", "v1", "mxjobs"


class MXJobs:
    def __init__(self, namespace: str) -> None:
        config.load_kube_config()
        self.namespace = namespace
        self.pods = client.CoreV1Api()
        self._api = client.CustomObjectsApi()
        self._resource = (_GROUP, _VERSION, namespace, _PLURAL)

    def create(self) -> dict[str, Any]:
        self._api.create_namespaced_custom_object(*self._resource, _mxjob())
        listed = self._api.list_namespaced_custom_object(*self._resource)
        return {"listed": [item["metadata"]["name"] for item in listed["items"]], "kind": self.get()["kind"]}

    def get(self) -> Any:
        return self._api.get_namespaced_custom_object(*self._resource, NAME)

    def patch(self, **run_policy: Any) -> None:
        self._api.patch_namespaced_custom_object(*self._resource, NAME, {"spec": {"runPolicy": run_policy}})

    def wait_for_condition(self, condition: str) -> list[str]:
        """Watch until a condition is true, and return all true conditions."""
        watching = watch.Watch()
        options = {"timeout_seconds": int(TIMEOUT_SECONDS), "field_selector": f"metadata.name={NAME}"}
        for event in watching.stream(self._api.list_namespaced_custom_object, *self._resource, **options):
            conditions = event["object"].get("status", {}).get("conditions", [])
            true_conditions = [each["type"] for each in conditions if each["status"] == "True"]
            if condition in true_conditions:
                watching.stop()
                return true_conditions
        raise TimeoutError(f"the condition {condition} was never true")

    def pod_phases(self) -> dict[str, str]:
        pods = self.pods.list_namespaced_pod(self.namespace, label_selector=f"training.kubeflow.org/job-name={NAME}")
        return {pod.metadata.name: pod.status.phase for pod in pods.items}

    def delete(self) -> list[str]:
        """Delete the job, wait until its pods are deleted, and list the remaining jobs."""
        self._api.delete_namespaced_custom_object(*self._resource, NAME)
        wait_until(lambda: not self.pod_phases())
        return [item["metadata"]["name"] for item in self._api.list_namespaced_custom_object(*self._resource)["items"]]


def _mxjob() -> Any:
    template = client.ApiClient().sanitize_for_serialization(pod_template("mxnet", HELD))
    roles = {role: {"replicas": 1, "restartPolicy": "Never", "template": template} for role in ("Scheduler", "Server", "Worker")}
    spec = {"jobMode": "MXTrain", "runPolicy": {"cleanPodPolicy": "None"}, "mxReplicaSpecs": roles}
    return {"apiVersion": API_VERSION, "kind": "MXJob", "metadata": {"name": NAME}, "spec": spec}


def main(namespace: str) -> None:
    jobs = MXJobs(namespace)
    observations: dict[str, Any] = {"create": jobs.create(), "running": jobs.wait_for_condition("Running")}
    wait_until(lambda: set(jobs.pod_phases().values()) == {"Running"})
    observations["pods"] = sorted(jobs.pod_phases())
    jobs.patch(suspend=True)
    observations["suspended"] = jobs.wait_for_condition("Suspended")
    wait_until(lambda: not jobs.pod_phases())
    jobs.patch(suspend=False)
    observations["resumed"] = jobs.wait_for_condition("Running")
    wait_until(lambda: len(jobs.pod_phases()) == len(observations["pods"]) and set(jobs.pod_phases().values()) == {"Running"})
    for pod in observations["pods"]:
        release(namespace, pod, "mxnet")
    observations["succeeded"] = jobs.wait_for_condition("Succeeded")
    observations["log"] = jobs.pods.read_namespaced_pod_log(LEADER, namespace, container="mxnet")
    observations["left"] = jobs.delete()
    print(json.dumps(observations))


if __name__ == "__main__":
    main(*sys.argv[1:])
