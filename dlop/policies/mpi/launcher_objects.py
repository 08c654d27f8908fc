"""Child objects of an MPI job: a config map with scripts, and a service account that can run commands in the workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from dlop.api.child_objects import Create
from dlop.api.names import label_value, object_name
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState
from dlop.api.types import PermissionSet
from dlop.kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from dlop.policies.children import ChildObjects

if TYPE_CHECKING:
    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")
_VERBS = ["get", "list", "watch", "create", "patch"]
_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [SERVICE_ACCOUNTS.plural, CONFIG_MAPS.plural], "verbs": _VERBS},
    {"apiGroups": [ROLES.group], "resources": [ROLES.plural, ROLE_BINDINGS.plural], "verbs": _VERBS},
    # RBAC lets the operator grant only permissions that it has itself.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
)


class LauncherObjects(ChildObjects[Job]):
    """The scripts list the workers. The role covers the workers whose pods belong to the job, and the binding the launcher's account.

    A pod of another owner can have the name of a desired worker. It must not become part of the role.
    """

    resources = (SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
    permission_set = PermissionSet("mpi", _RULES)

    @abstractmethod
    def scripts(self, job: Job, *, running: Sequence[str]) -> Mapping[str, str]:
        """Contents of the files by name. `running` are the names of the running workers."""

    def grants_exec(self, job: Job) -> bool:
        """Whether the operator grants the launcher's account the permissions that it needs. Otherwise the user does."""
        return True

    def build(self, job: Job) -> tuple[Create, ...]:
        account = (_service_account(_metadata(job, launcher_account(job))),) if self.grants_exec(job) else ()
        return (*account, *self._build_updated(job, workers=()))

    def update(self, job: Job, progress: Progress) -> tuple[Create, ...]:
        """All objects except the service account. The scripts list the running workers."""
        workers = progress.role("Worker")
        return self._build_updated(job, workers=workers.replicas if workers is not None else ())

    def _build_updated(self, job: Job, *, workers: Collection[ReplicaProgress]) -> tuple[Create, ...]:
        names = worker_names(job)
        running = [names[worker.index] for worker in workers if worker.state is ReplicaState.RUNNING]
        config_map = _config_map(_metadata(job, config_map_name(job)), self.scripts(job, running=running))
        if not self.grants_exec(job):
            return (config_map,)
        name = _launcher_name(job)
        role = _role(_metadata(job, name), pods=[worker.pod.metadata.name for worker in workers if worker.pod is not None])
        return config_map, role, _binding(_metadata(job, name), role=name, account=launcher_account(job))


def config_map_name(job: DLJob) -> str:
    """The name of the config map with the scripts."""
    return object_name(job.metadata.name, "-config")


def launcher_template(job: DLJob) -> JsonObject:
    """The pod template of the launcher."""
    launcher = job.spec.role("Launcher")
    return {} if launcher is None else launcher.template


def names_account(job: DLJob) -> bool:
    """Whether the user has named the service account of the launcher."""
    return bool(_named_account(job))


def launcher_account(job: DLJob) -> str:
    """The service account of the launcher, which may be the user's."""
    return _named_account(job) or _launcher_name(job)


def worker_names(job: DLJob) -> list[str]:
    """The pod names of all desired workers."""
    role = job.spec.role("Worker")
    return [] if role is None else [job.naming.pod_name(job, role, index) for index in range(role.replicas)]


def _named_account(job: DLJob) -> str:
    account = (launcher_template(job).get("spec") or {}).get("serviceAccountName")
    return account if isinstance(account, str) else ""


def _launcher_name(job: DLJob) -> str:
    """The name of the launcher's account, role and role binding."""
    return object_name(job.metadata.name, "-launcher")


def _metadata(job: DLJob, name: str) -> JsonObject:
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
