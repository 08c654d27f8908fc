"""The pod of the master. Its image and what depends on the job are set when the pod is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlop import JsonObject, ManifestField
from dlop.frameworks.dlrover.names import CONTAINER, MASTER_PORT

_RESOURCES = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi"}
_ARGUMENTS = (
    "pending_timeout",
    "pending_fail_strategy",
    "service_type",
    "pre_check_ops",
    "pre_check_bypass",
    "training_elastic_mode",
    "enable_dashboard",
    "dashboard_port",
)
"""Annotations of a job that become arguments of the master."""


def read_master_template(field: ManifestField) -> JsonObject:
    """The pod template from the spec, or the default one."""
    field.object()
    template = field.get("template")
    if template.is_absent:
        container = {"imagePullPolicy": "Always", "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)}}
        return {"spec": {"containers": [{"name": CONTAINER, **container}]}}
    template.object()
    template.get("spec").object()
    containers = template.get("spec").get("containers")
    raw = [item.object() for item in containers.items()]
    if not raw:
        containers.error("must have at least one container")
        return {}
    for index, entry in enumerate(containers.items()):
        for name in ("name", "image"):
            entry.get(name).string()
        if index and not entry.get("image").string():
            entry.get("image").error("is missing")
    return {**template.object(), "spec": {**template.get("spec").object(), "containers": [{"name": CONTAINER, **raw[0]}, *raw[1:]]}}


def complete_master(spec: JsonObject, *, image: str, command: Sequence[str]) -> JsonObject:
    """The pod spec of the master with image and command, unless the user has set them."""
    containers = list(spec["containers"])
    index = next((number for number, container in enumerate(containers) if container["name"] == CONTAINER), 0)
    container = {**containers[index], "image": containers[index].get("image") or image}
    if not container.get("command") and not container.get("args"):
        container["command"] = list(command)
    containers[index] = container
    return {**spec, "containers": containers}


def master_command(*, platform: str, namespace: str, job: str, annotations: Mapping[str, str]) -> list[str]:
    """The command of the master. Each annotation is an argument of its own, and no shell reads it."""
    job_arguments = ["--platform", platform, "--namespace", namespace, "--job_name", job, "--port", str(MASTER_PORT)]
    options = [part for name in _ARGUMENTS if name in annotations for part in (f"--{name}", annotations[name])]
    return ["python", "-m", "dlrover.python.master.main", *job_arguments, *options]
