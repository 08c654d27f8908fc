"""The objects of a job's TensorBoard: a pod, a service, and an Ingress if it has a host.

The pod has the image, the volumes and the placement of the job's leading role, without its program and its resources. The service and
the Ingress are child objects like those of a kind. The pod is a companion: it is created when the job runs, and kept for some time
after its end (`dlop/reconcile/tensorboard.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlop.api.child_objects import Create
from dlop.api.constants import JOB_UID_LABEL
from dlop.api.names import label_value
from dlop.api.parsing import training_container
from dlop.api.template_hash import with_template_hash
from dlop.api.tensorboard import (
    COMPANION_LABEL,
    REPLICA_NAME_LABEL,
    REPLICA_TYPE_LABEL,
    TENSORBOARD,
    TENSORBOARD_PORT,
    TensorBoard,
    TensorBoardIngress,
    tensorboard_name,
)
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.types import JsonObject
from dlop.policies.children import ChildObjects
from dlop.policies.ingress import INGRESS_PERMISSIONS, INGRESSES, ingress_body

if TYPE_CHECKING:
    from dlop.job import DLJob

_LEADING_ROLES = ("chief", "master", "worker", "trainer")
"""The first of these roles gives its pod template. Jobs without them use their first role."""
_POD_FIELDS = (
    "affinity",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
    "volumes",
)
"""What the pod takes over: where it may run, and what it may read. The rest belongs to the program, such as init containers and GPUs."""
_CONTAINER_FIELDS = ("env", "envFrom", "imagePullPolicy", "securityContext", "volumeMounts", "workingDir")
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - services reach the address of the pod, and port-forwarding its loopback address
_NO_GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": ""}
"""Without it, images for GPUs see all GPUs of the node."""


class TensorBoardObjects(ChildObjects["DLJob"]):
    """The service and the Ingress."""

    resources = (INGRESSES,)
    on_demand = True
    permission_set = INGRESS_PERMISSIONS

    def build(self, job: DLJob) -> tuple[Create, ...]:
        return tensorboard_children(job)


def tensorboard_children(job: DLJob) -> tuple[Create, ...]:
    """The service and the Ingress; empty if the job has no TensorBoard."""
    tensorboard = job.spec.run_policy.tensorboard
    if tensorboard is None:
        return ()
    service = Create(SERVICES, _service(job))
    return (service,) if tensorboard.ingress is None else (service, Create(INGRESSES, _ingress(job, tensorboard, tensorboard.ingress)))


def tensorboard_pod(job: DLJob) -> Create | None:
    """The pod of the TensorBoard; None if the job has none."""
    tensorboard, template = job.spec.run_policy.tensorboard, _template_spec(job)
    if tensorboard is None or template is None:
        return None
    original = training_container(template["containers"], job.container_properties)
    path = tensorboard.path(job.metadata.namespace, job.metadata.name)
    container = {
        "name": TENSORBOARD,
        "image": tensorboard.image or original.get("image", ""),
        "command": ["python", "-m", "tensorboard.main"],
        "args": [f"--logdir={tensorboard.log_dir}", f"--host={_ALL_ADDRESSES}", f"--port={TENSORBOARD_PORT}", f"--path_prefix={path}"],
        "ports": [{"name": TENSORBOARD, "containerPort": TENSORBOARD_PORT}],
        "readinessProbe": {"tcpSocket": {"port": TENSORBOARD_PORT}, "periodSeconds": 2},
        **{name: original[name] for name in _CONTAINER_FIELDS if name in original},
    }
    container["env"] = [*_environment(original), dict(_NO_GPUS)]
    spec = {**{name: template[name] for name in _POD_FIELDS if name in template}, "containers": [container], "restartPolicy": "Always"}
    metadata = _metadata(job)
    metadata["labels"]["job-name"] = label_value(job.metadata.name)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return Create(PODS, with_template_hash(pod, generation=job.metadata.generation))


def _template_spec(job: DLJob) -> JsonObject | None:
    """The pod spec of the leading role; None if no role has a usable one."""
    roles = {role.name.lower(): role for role in reversed(job.spec.roles)}
    candidates = (*(roles[name] for name in _LEADING_ROLES if name in roles), *job.spec.roles)
    specs = (role.template.get("spec") for role in candidates)
    return next((spec for spec in specs if isinstance(spec, dict) and _has_containers(spec.get("containers"))), None)


def _has_containers(containers: Any) -> bool:
    """The spec of a finished job may be invalid."""
    return isinstance(containers, list) and bool(containers) and all(isinstance(container, dict) for container in containers)


def _environment(container: JsonObject) -> list[JsonObject]:
    """The variables of a container that are usable, without the one for GPUs."""
    variables = container.get("env")
    usable = (each for each in variables if isinstance(each, dict)) if isinstance(variables, list) else ()
    return [variable for variable in usable if variable.get("name") != _NO_GPUS["name"]]


def _selector(name: str) -> dict[str, str]:
    """The labels of KubeDL, so that its services select the pods of dlop."""
    return {REPLICA_TYPE_LABEL: TENSORBOARD, "replica-index": "0", REPLICA_NAME_LABEL: name}


def _metadata(job: DLJob) -> JsonObject:
    name = tensorboard_name(job.metadata.name)
    labels = {COMPANION_LABEL: TENSORBOARD, JOB_UID_LABEL: job.metadata.uid, **_selector(name)}
    return {**job.child_metadata(name), "labels": labels}


def _service(job: DLJob) -> JsonObject:
    metadata = _metadata(job)
    ports = [{"name": TENSORBOARD, "port": TENSORBOARD_PORT}]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _selector(metadata["name"]), "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _ingress(job: DLJob, tensorboard: TensorBoard, ingress: TensorBoardIngress) -> JsonObject:
    """It has a template hash like the pod, because it is replaced when its configuration changes."""
    metadata = _metadata(job)
    if ingress.annotations:
        metadata["annotations"] = dict(ingress.annotations)
    path = tensorboard.path(job.metadata.namespace, job.metadata.name)
    body = ingress_body(metadata, host=ingress.host, paths=[path], path_type="Prefix", service=metadata["name"], port=TENSORBOARD_PORT)
    if ingress.class_name:
        body["spec"]["ingressClassName"] = ingress.class_name
    return with_template_hash(body, generation=job.metadata.generation)
