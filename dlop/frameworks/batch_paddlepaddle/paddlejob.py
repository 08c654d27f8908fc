"""PaddleJob of batch.paddlepaddle.org/v1: parameter servers, workers and heterogeneous workers."""

from __future__ import annotations

from collections.abc import Mapping

from dlop import (
    AGE,
    CleanPodPolicy,
    Column,
    ConfigMapKey,
    ContainerProperties,
    DLJob,
    FieldRef,
    JobType,
    JsonObject,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleSpec,
    cached_property,
)
from dlop.frameworks.batch_paddlepaddle.endpoints import FIRST_PORT, Endpoints, attempt_variables, shared_variables
from dlop.frameworks.batch_paddlepaddle.schema import (
    PORTS,
    CleanPolicy,
    Intranet,
    PaddleJobModel,
    PaddleJobSchema,
    is_elastic,
    read_clean_policy,
    read_intranet,
)
from dlop.frameworks.batch_paddlepaddle.status import PaddleStatus
from dlop.policies import JOB_NAME_LABEL, Lifecycle, Naming, label_value

_TRAINING_ROLES = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER"}
_ELASTIC_TIMEOUT_SECONDS = 60


class PaddleNaming(Naming["PaddleJob"]):
    """The labels of the old operator, and the name of the job."""

    def role_labels(self, job: PaddleJob, role: RoleSpec) -> Mapping[str, str]:
        return {JOB_NAME_LABEL: label_value(job.metadata.name), "paddle-res-type": role.name}

    def labels(self, job: PaddleJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(job, role), "paddle-res-name": self.pod_name(job, role, index)}


class PaddleLifecycle(Lifecycle["PaddleJob"]):
    """The job runs when all its pods run. It fails with its first failed pod, and succeeds when all pods have succeeded."""

    def is_running(self, job: PaddleJob, progress: Progress) -> bool:
        states = {replica.state for role in progress.roles for replica in role.replicas}
        return ReplicaState.RUNNING in states and states <= {ReplicaState.RUNNING, ReplicaState.SUCCEEDED}

    def fixed_roles(self, job: PaddleJob) -> tuple[str, ...]:
        return () if job.is_elastic else tuple(role.name for role in job.spec.roles)

    def pod_restart_policy(self, job: PaddleJob, role: RoleSpec, index: int) -> RestartPolicy:
        """A container that the kubelet restarts keeps its address, so this does not restart the job."""
        if role.restart_policy is RestartPolicy.EXIT_CODE or not job.spec_field.get("runPolicy").get("restartScope").is_absent:
            return super().pod_restart_policy(job, role, index)
        return role.restart_policy

    def clean_pod_policy(self, job: PaddleJob, *, succeeded: bool) -> CleanPodPolicy:
        """`runPolicy.cleanPodPolicy` takes precedence."""
        if not job.spec_field.get("runPolicy").get("cleanPodPolicy").is_absent:
            return super().clean_pod_policy(job, succeeded=succeeded)
        cleaning = (CleanPolicy.ALWAYS, CleanPolicy.ON_COMPLETION if succeeded else CleanPolicy.ON_FAILURE)
        return CleanPodPolicy.ALL if read_clean_policy(job.spec_field) in cleaning else CleanPodPolicy.NONE


class PaddleJob(DLJob):
    """A PaddlePaddle job with parameter servers, workers and heterogeneous workers. It succeeds when all pods succeed."""

    job_type = JobType(group="batch.paddlepaddle.org", version="v1", kind="PaddleJob", short_names=("pdj",))
    replica_types = (
        ReplicaType("ps", restart_policy=RestartPolicy.NEVER),
        ReplicaType("worker", restart_policy=RestartPolicy.NEVER),
        ReplicaType("heter", restart_policy=RestartPolicy.NEVER),
    )
    container_properties = ContainerProperties(name="", port=FIRST_PORT, port_name="p-0", adds_port=False, overrides_user_env=True)
    schema = PaddleJobSchema(
        model=PaddleJobModel,
        scale="worker",
        scheduling_path=("schedulingPolicy",),
        columns=(Column("Status", ".status.phase"), Column("Mode", ".status.mode"), AGE),
    )
    naming = PaddleNaming()
    lifecycle = PaddleLifecycle()
    status = PaddleStatus()
    children = (Endpoints(),)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef | ConfigMapKey]:
        role = _TRAINING_ROLES[replica.role]
        is_named = self.intranet is Intranet.SERVICE
        return {
            "POD_IP": self.host(replica.role, replica.index) if is_named else FieldRef("status.podIP"),
            "PADDLE_TRAINER_ID": str(replica.index),
            "TRAINING_ROLE": role,
            "PADDLE_TRAINING_ROLE": role,
            **self._shared_variables,
            **attempt_variables(self, replica),
        }

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Sets the host name, the network and the port."""
        spec: JsonObject = {**pod["spec"], "hostname": replica.name, "subdomain": replica.name}
        if self.intranet is Intranet.HOST:
            spec |= {"hostNetwork": True, "dnsPolicy": spec.get("dnsPolicy") or "ClusterFirstWithHostNet"}
        if self.intranet is not Intranet.POD_IP:
            # In the host network, the scheduler then places no two pods of the job on one node.
            first, *others = spec["containers"]
            ports = first.get("ports") or []
            # The API server rejects a port of the host that is listed twice.
            if (self.first_port, "TCP") not in ((port.get("containerPort"), port.get("protocol") or "TCP") for port in ports):
                ports = [*ports, {"containerPort": self.first_port}]
            spec["containers"] = [{**first, "ports": ports}, *others]
        annotations = {**(pod["metadata"].get("annotations") or {}), "paddle-resource": replica.role}
        return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}

    def customize_service(self, replica: Replica, service: JsonObject) -> JsonObject:
        """All ports that the pod may use."""
        ports = [{"name": f"p-{number}", "port": FIRST_PORT + number} for number in range(PORTS)]
        return {**service, "spec": {**service["spec"], "ports": ports}}

    @cached_property
    def intranet(self) -> Intranet:
        return read_intranet(self.spec_field)

    @cached_property
    def is_elastic(self) -> bool:
        """Whether the workers can be scaled without a restart of the job."""
        return is_elastic(self.spec_field)

    @property
    def has_config_map(self) -> bool:
        """Whether the addresses are known only when all pods are scheduled."""
        return not self.is_elastic and self.intranet is not Intranet.SERVICE

    @property
    def mode(self) -> str:
        """PS, Collective or Single. The spec may be invalid."""
        if not self.spec_field.get("ps").is_absent:
            return "PS"
        return "Collective" if self.spec_field.get("worker").get("replicas").integer(0) > 1 else "Single"

    @property
    def first_port(self) -> int:
        """The first port of each pod. In the host network, it differs between jobs."""
        return self.host_port or FIRST_PORT

    @property
    def _elastic_workers(self) -> str:
        """The number of workers, or `minimum:maximum` if the autoscaler chooses it."""
        worker = self.spec.role("worker")
        limits = None if worker is None else worker.elastic
        return str(self.replicas("worker")) if limits is None else f"{limits.minimum}:{limits.maximum}"

    @cached_property
    def _shared_variables(self) -> Mapping[str, str | FieldRef | ConfigMapKey]:
        """Variables that are the same in all pods."""
        if not self.is_elastic:
            return shared_variables(self)
        return {
            "PADDLE_ELASTIC_JOB_ID": f"{self.metadata.namespace}-{self.metadata.name}",
            "PADDLE_ELASTIC_NP": self._elastic_workers,
            "PADDLE_ELASTIC_TIMEOUT": str(_ELASTIC_TIMEOUT_SECONDS),
        }
