"""MPIJob of kubeflow.org/v1: a launcher that starts processes in its workers through `kubectl exec`, for OpenMPI, Intel MPI and Horovod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlop import (
    ContainerProperties,
    Create,
    JobSpec,
    JobType,
    ManifestField,
    Outcome,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RoleSpec,
)
from dlop.api.cached_property import cached_property
from dlop.api.crd import AGE, LAST_FAILURE, STATE_BY_CONDITIONS
from dlop.api.names import label_value, object_name
from dlop.api.spec import RestartPolicy
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.mpi import pods, rbac, schema, scripts
from dlop.kube.types import JsonObject

_READY = (ReplicaState.RUNNING, ReplicaState.SUCCEEDED)


class MPIJob(KubeflowJob):
    """An MPI job: a launcher and its workers. It is done when the launcher is, which starts when all workers run."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MPIJob")
    replica_types = (
        ReplicaType("Worker", default_replicas=0, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Launcher", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),
    )
    container_properties = ContainerProperties(name="")
    framework_label = "mpi"
    replica_specs_field = schema.REPLICA_SPECS
    leading_roles = ("Launcher",)
    informs_all_containers = False
    spec_model = schema.SPEC_MODEL
    scale_paths = None
    printer_columns = (AGE, STATE_BY_CONDITIONS, LAST_FAILURE)
    # Without services, any name will do.
    name_pattern = ""
    other_resources = rbac.RESOURCES
    optional_rights = rbac.RIGHTS

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """The policy for pods may also stand at the top."""
        return schema.with_older_policy(super().read_spec(spec), spec)

    # Names, labels, pods.

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """There is one launcher, and it has no number."""
        return object_name(self.metadata.name, "-launcher" if role.name == "Launcher" else f"-worker-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """Nobody needs a service: commands reach the workers through the API server."""
        return None

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The launcher has no index."""
        return self.role_labels(role) if role.name == "Launcher" else super().labels(role, index)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """How the launcher reaches the workers. Workers are told nothing."""
        return pods.launcher_variables(replica.spec.template) if replica.role == "Launcher" else {}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """With the scripts."""
        config_map, account = self._belongings.config_map, self._belongings.account
        if replica.role == "Worker":
            return {**pod, "spec": pods.worker_spec(pod["spec"], config_map=config_map)}
        delivery = pods.delivery(self.options.kubectl_delivery_image, namespace=self.metadata.namespace)
        return {**pod, "spec": pods.launcher_spec(pod["spec"], config_map=config_map, service_account=account, delivery=delivery)}

    # The way of the job.

    def fixed_roles(self) -> tuple[str, ...]:
        """None: whoever wants to know how many workers there are reads the scripts, which are kept up."""
        return ()

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """The launcher waits until there is somebody to launch anything in."""
        workers = progress.role("Worker")
        return role.name == "Worker" or workers is None or workers.count(*_READY) == len(workers.replicas)

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Once the launcher has finished, workers do not count."""
        status = super().write_status(outcome)
        launcher, counts = outcome.progress.role("Launcher"), status.get("replicaStatuses") or {}
        if launcher is None or not launcher.count(ReplicaState.SUCCEEDED, ReplicaState.FAILED) or "Worker" not in counts:
            return status
        return {**status, "replicaStatuses": {**counts, "Worker": {}}}

    # What there is besides pods.

    def other_objects(self) -> tuple[Create, ...]:
        """The scripts, and an account for the launcher that may run commands in the workers."""
        return self._belongings.all(self._scripts(running=()), workers=self._workers)

    def changing_objects(self, progress: Progress) -> tuple[Create, ...]:
        """The scripts tell which workers run; the rights are for all that are asked for, and for the account of the launcher."""
        workers = progress.role("Worker")
        running = [each.index for each in workers.replicas if each.state is ReplicaState.RUNNING] if workers is not None else []
        return self._belongings.changing(self._scripts(running=running), workers=self._workers)

    def _scripts(self, *, running: Iterable[int]) -> dict[str, str]:
        launcher = self._belongings.launcher if pods.asks_for_gpu(self._template) else ""
        names = [self._workers[index] for index in running]
        return scripts.scripts(ManifestField("spec", self.raw_spec), workers=self._workers, running=names, launcher=launcher)

    @cached_property
    def _belongings(self) -> rbac.Belongings:
        name = self.metadata.name
        launcher = object_name(name, "-launcher")
        account = ManifestField("template", self._template).get("spec").get("serviceAccountName").text() or launcher
        return rbac.Belongings(launcher, object_name(name, "-config"), account, owned=self._owned)

    def _owned(self, name: str) -> JsonObject:
        return {**self.owned(name), "labels": {"app": label_value(self.metadata.name)}}

    @cached_property
    def _workers(self) -> list[str]:
        found = self.spec.role("Worker")
        return [] if found is None else [self.replica_name(found, index) for index in range(found.replicas)]

    @property
    def _template(self) -> JsonObject:
        launcher = self.spec.role("Launcher")
        return {} if launcher is None else launcher.template
