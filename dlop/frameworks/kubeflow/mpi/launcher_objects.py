"""Child objects of an MPI job: a config map with scripts, and a service account that can run commands in the workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from dlop import (
    CONFIG_MAPS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Create,
    JsonObject,
    PermissionSet,
    Progress,
    ReplicaProgress,
    ReplicaState,
)
from dlop.frameworks.kubeflow.mpi.pods import requests_gpu
from dlop.frameworks.kubeflow.mpi.scripts import build_scripts
from dlop.policies import ChildObjects, label_value, object_name

if TYPE_CHECKING:
    from dlop.frameworks.kubeflow.mpi.job import MPIJob

_VERBS = ["get", "list", "watch", "create", "patch"]
_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [SERVICE_ACCOUNTS.plural, CONFIG_MAPS.plural], "verbs": _VERBS},
    {"apiGroups": [ROLES.group], "resources": [ROLES.plural, ROLE_BINDINGS.plural], "verbs": _VERBS},
    # RBAC lets the operator grant only permissions that it has itself.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
)


class LauncherObjects(ChildObjects["MPIJob"]):
    """The scripts list the workers. The role covers the workers whose pods belong to the job, and the binding the launcher's account.

    A pod of another owner can have the name of a desired worker. It must not become part of the role.
    """

    resources = (SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
    permission_set = PermissionSet("mpi", _RULES)

    def build(self, job: MPIJob) -> tuple[Create, ...]:
        return (_service_account(_metadata(job, job.launcher_account)), *_build_updated(job, workers=()))

    def update(self, job: MPIJob, progress: Progress) -> tuple[Create, ...]:
        """All objects except the service account. The scripts list the running workers."""
        workers = progress.role("Worker")
        return _build_updated(job, workers=workers.replicas if workers is not None else ())


def config_map_name(job: MPIJob) -> str:
    """The name of the config map with the scripts."""
    return object_name(job.metadata.name, "-config")


def _build_updated(job: MPIJob, *, workers: Collection[ReplicaProgress]) -> tuple[Create, ...]:
    running = [worker.index for worker in workers if worker.state is ReplicaState.RUNNING]
    config_map = _config_map(_metadata(job, config_map_name(job)), _scripts(job, running=running))
    role = _role(_metadata(job, job.launcher_name), pods=[worker.pod.metadata.name for worker in workers if worker.pod is not None])
    return config_map, role, _binding(_metadata(job, job.launcher_name), role=job.launcher_name, account=job.launcher_account)


def _scripts(job: MPIJob, *, running: Iterable[int]) -> dict[str, str]:
    workers = job.worker_names
    launcher = job.launcher_name if requests_gpu(job.launcher_template) else ""
    return build_scripts(job.spec_field, workers=workers, running=[workers[index] for index in running], launcher=launcher)


def _metadata(job: MPIJob, name: str) -> JsonObject:
    return {**job.child_metadata(name), "labels": {"app": label_value(job.metadata.name)}}


def _service_account(metadata: JsonObject) -> Create:
    """The launcher's service account. An existing one of this name is used regardless of its owner."""
    return Create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, allow_existing=True)


def _config_map(metadata: JsonObject, contents: Mapping[str, str]) -> Create:
    return Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(contents)})


def _role(metadata: JsonObject, *, pods: Iterable[str]) -> Create:
    """A role to read all pods and to run commands in these."""
    read_rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    exec_rule = {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": list(pods), "verbs": ["create"]}
    # A rule with an empty resourceNames list would apply to all pods.
    rules = [read_rule, exec_rule] if exec_rule["resourceNames"] else [read_rule]
    return Create(ROLES, {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": rules})


def _binding(metadata: JsonObject, *, role: str, account: str) -> Create:
    body = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": metadata["namespace"]}],
    }
    return Create(ROLE_BINDINGS, body)
