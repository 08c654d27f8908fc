"""MPIJob of kubeflow.org/v1: a launcher that starts processes in its workers with `kubectl exec`, for Open MPI, Intel MPI and Horovod."""

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
    """An MPI job with a launcher and workers. The launcher starts when all workers run, and the job succeeds with the launcher."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MPIJob")
    replica_types = (
        ReplicaType("Worker", default_replicas=0, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Launcher", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),
    )
    container_properties = ContainerProperties(name="")
    framework_label = "mpi"
    replica_specs_field = schema.REPLICA_SPECS
    leading_roles = ("Launcher",)
    sets_env_in_all_containers = False
    spec_model = schema.SPEC_MODEL
    scale_paths = None
    printer_columns = (AGE, STATE_BY_CONDITIONS, LAST_FAILURE)
    # The job has no services, so its name need not be a DNS label.
    name_pattern = ""
    child_resources = rbac.RESOURCES
    optional_permissions = rbac.PERMISSIONS

    def read_spec(self, spec: ManifestField) -> JobSpec:
        """Also reads the legacy field `spec.cleanPodPolicy`."""
        return schema.with_legacy_clean_pod_policy(super().read_spec(spec), spec)

    # Names, labels, pods.

    def replica_name(self, role: RoleSpec, index: int) -> str:
        return object_name(self.metadata.name, "-launcher" if role.name == "Launcher" else f"-worker-{index}")

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """No services: the launcher reaches the workers through the API server."""
        return None

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The launcher has no index label."""
        return self.role_labels(role) if role.name == "Launcher" else super().labels(role, index)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return pods.launcher_env(replica.spec.template) if replica.role == "Launcher" else {}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        config_map, account = self._launcher_objects.config_map, self._launcher_objects.account
        if replica.role == "Worker":
            return {**pod, "spec": pods.worker_spec(pod["spec"], config_map=config_map)}
        init_container = pods.kubectl_delivery_container(self.options.kubectl_delivery_image, namespace=self.metadata.namespace)
        spec = pods.launcher_spec(pod["spec"], config_map=config_map, service_account=account, init_container=init_container)
        return {**pod, "spec": spec}

    # Lifecycle.

    def fixed_roles(self) -> tuple[str, ...]:
        """None: the number of workers is not in the environment but in the host file, which is kept current."""
        return ()

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """The launcher starts when all workers run."""
        workers = progress.role("Worker")
        return role.name == "Worker" or workers is None or workers.count(*_READY) == len(workers.replicas)

    def write_status(self, outcome: Outcome) -> JsonObject:
        """When the launcher has finished, the counts of the workers are empty."""
        status = super().write_status(outcome)
        launcher, counts = outcome.progress.role("Launcher"), status.get("replicaStatuses") or {}
        if launcher is None or not launcher.count(ReplicaState.SUCCEEDED, ReplicaState.FAILED) or "Worker" not in counts:
            return status
        return {**status, "replicaStatuses": {**counts, "Worker": {}}}

    # Child objects.

    def child_objects(self) -> tuple[Create, ...]:
        """A config map with the scripts, and a service account for the launcher that may run commands in the workers."""
        return self._launcher_objects.build_all(self._scripts(running=()), workers=self._worker_names)

    def updated_children(self, progress: Progress) -> tuple[Create, ...]:
        """The scripts list the running workers. The role covers all desired workers, and the binding the launcher's account."""
        workers = progress.role("Worker")
        running = [replica.index for replica in workers.replicas if replica.state is ReplicaState.RUNNING] if workers is not None else []
        return self._launcher_objects.build_updated(self._scripts(running=running), workers=self._worker_names)

    def _scripts(self, *, running: Iterable[int]) -> dict[str, str]:
        launcher = self._launcher_objects.launcher if pods.requests_gpu(self._launcher_template) else ""
        running_names = [self._worker_names[index] for index in running]
        return scripts.build_scripts(
            ManifestField("spec", self.raw_spec), workers=self._worker_names, running=running_names, launcher=launcher
        )

    @cached_property
    def _launcher_objects(self) -> rbac.LauncherObjects:
        name = self.metadata.name
        launcher = object_name(name, "-launcher")
        account = ManifestField("template", self._launcher_template).get("spec").get("serviceAccountName").string() or launcher
        return rbac.LauncherObjects(launcher, object_name(name, "-config"), account, make_metadata=self._metadata)

    def _metadata(self, name: str) -> JsonObject:
        return {**self.child_metadata(name), "labels": {"app": label_value(self.metadata.name)}}

    @cached_property
    def _worker_names(self) -> list[str]:
        role = self.spec.role("Worker")
        return [] if role is None else [self.replica_name(role, index) for index in range(role.replicas)]

    @property
    def _launcher_template(self) -> JsonObject:
        launcher = self.spec.role("Launcher")
        return {} if launcher is None else launcher.template
