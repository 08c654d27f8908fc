"""ElasticJob of elastic.iml.github.io/v1alpha1: a job whose pods are managed by a master of DLRover."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from dlop import (
    AGE,
    Column,
    ContainerProperties,
    DLJob,
    FieldRef,
    FrameworkFlags,
    JobType,
    JsonObject,
    LastFailure,
    MemberReplica,
    Problem,
    Replica,
    ReplicaType,
    RoleSpec,
    cached_property,
)
from dlop.frameworks.dlrover.access import MasterAccess
from dlop.frameworks.dlrover.master_template import complete_master, master_command
from dlop.frameworks.dlrover.members import ElasticJobMembers, member_spec, member_variables
from dlop.frameworks.dlrover.names import (
    CONTAINER,
    INDEX_LABEL,
    MASTER,
    MASTER_APP,
    MASTER_PORT,
    NAME_LABEL,
    PLATFORM_ANNOTATION,
    PS,
    TYPE_LABEL,
    WORKER,
    master_service,
    member_name,
    member_port,
)
from dlop.frameworks.dlrover.schema import ElasticJobModel, ElasticJobSchema, Strategy, read_strategy
from dlop.frameworks.dlrover.status import ElasticJobStatus
from dlop.policies import Lifecycle, Naming

_BRAIN = "dlrover-brain.dlrover.svc.cluster.local:50001"


class Platform(StrEnum):
    """Who creates the pods that the master manages."""

    MASTER = "pyk8s"
    """The master."""
    SCALE_PLANS = "k8s"
    """The operator, for the ScalePlans of the master."""


class ElasticJobFlags(FrameworkFlags):
    """Flags of the operator for ElasticJobs."""

    elasticjob_master_image: str = Field(
        default="registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover:latest",
        min_length=1,
        description="Image of the masters of ElasticJobs that set none.",
    )
    elasticjob_platform: Platform = Field(
        default=Platform.MASTER,
        description="Who creates the pods of ElasticJobs: their master (pyk8s), or the operator for ScalePlans (k8s).",
    )


class ElasticJobNaming(Naming["ElasticJob"]):
    """Each attempt of the master has a pod name of its own, and all have the same service."""

    def pod_name(self, job: ElasticJob, role: RoleSpec, index: int) -> str:
        if role.name == MASTER:
            return f"{master_service(job.metadata.name)}-{job.attempt(MASTER)}"
        return member_name(job.metadata.name, role.name, index)

    def service_name(self, job: ElasticJob, role: RoleSpec, index: int) -> str | None:
        return master_service(job.metadata.name)

    def role_labels(self, job: ElasticJob, role: RoleSpec) -> Mapping[str, str]:
        return {**MASTER_APP, NAME_LABEL: job.metadata.name, TYPE_LABEL: role.name}

    def labels(self, job: ElasticJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return self.role_labels(job, role)

    def pod_labels(self, job: ElasticJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels of the job, and the number of the master."""
        return {**job.metadata.labels, **({INDEX_LABEL: str(job.attempt(MASTER))} if role.name == MASTER else {})}


class ElasticJobLifecycle(Lifecycle["ElasticJob"]):
    """The job ends with its master: exit code 0 is success, 1 is failure. After other failures, a new master adopts the pods."""

    def is_final_failure(self, job: ElasticJob, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        return failure.exit_code == 1


class ElasticJob(DLJob):
    """A job whose master decides how many pods it has, and replaces them. It ends with its master."""

    job_type = JobType(group="elastic.iml.github.io", version="v1alpha1", kind="ElasticJob")
    replica_types = (
        ReplicaType(MASTER, minimum=1, maximum=1),
        ReplicaType(PS, default_replicas=0, required_for_success=False),
        ReplicaType("chief", default_replicas=0, required_for_success=False),
        ReplicaType(WORKER, default_replicas=0, required_for_success=False),
        ReplicaType("evaluator", default_replicas=0, required_for_success=False),
    )
    container_properties = ContainerProperties(name=CONTAINER, port=MASTER_PORT, port_name="grpc", adds_port=False)
    schema = ElasticJobSchema(
        model=ElasticJobModel,
        columns=(Column("Phase", ".status.phase"), AGE),
        # The name of the master's service must not be longer than 63 characters.
        name_pattern="^[a-z]([-a-z0-9]{0,35}[a-z0-9])?$",
    )
    naming = ElasticJobNaming()
    lifecycle = ElasticJobLifecycle()
    status = ElasticJobStatus()
    children = (MasterAccess(),)
    members = ElasticJobMembers()
    flags = ElasticJobFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        if isinstance(replica, MemberReplica):
            return member_variables(self, replica.member)
        return {"POD_IP": FieldRef("status.podIP"), **self._brain_variables}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Pods have the annotations of the job."""
        metadata = {**pod["metadata"], "annotations": {**(pod["metadata"].get("annotations") or {}), **self.metadata.annotations}}
        if isinstance(replica, MemberReplica):
            return {**pod, "metadata": metadata, "spec": member_spec(self, replica.member, pod["spec"])}
        spec = complete_master(pod["spec"], image=self._flags.elasticjob_master_image, command=self._master_command)
        return {**pod, "metadata": metadata, "spec": spec if self.has_own_account else {**spec, "serviceAccountName": self._account}}

    def customize_service(self, replica: Replica, service: JsonObject) -> JsonObject:
        """The master of DLRover gives its port this name, too. Services of members are headless."""
        port = member_port(replica.role) if isinstance(replica, MemberReplica) else MASTER_PORT
        spec = {**service["spec"], "ports": [{"name": "grpc", "port": port}]}
        if not isinstance(replica, MemberReplica):
            del spec["clusterIP"]
        return {**service, "spec": spec}

    @cached_property
    def strategy(self) -> Strategy:
        return read_strategy(self.spec_field)

    @property
    def is_paused(self) -> bool:
        """Whether no more pods are created. Those that exist are kept."""
        return self.spec_field.get("suspend").boolean()

    @property
    def spec_warnings(self) -> tuple[Problem, ...]:
        """An unknown platform in the annotation is reported and ignored."""
        platform = self.metadata.annotations.get(PLATFORM_ANNOTATION)
        if platform is None or platform in list(Platform):
            return super().spec_warnings
        known = " or ".join(Platform)
        message = f"must be {known}, got {platform!r:.60}; the job is on platform {self._platform}, as --elasticjob-platform says"
        return (*super().spec_warnings, Problem(f"metadata.annotations[{PLATFORM_ANNOTATION}]", message))

    @property
    def uses_scale_plans(self) -> bool:
        """Whether the master writes ScalePlans."""
        return self._platform is Platform.SCALE_PLANS

    @cached_property
    def _platform(self) -> Platform:
        platform = self.metadata.annotations.get(PLATFORM_ANNOTATION, "")
        return Platform(platform) if platform in list(Platform) else self._flags.elasticjob_platform

    @property
    def has_own_account(self) -> bool:
        """Whether the user has set the service account of the master."""
        role = self.spec.role(MASTER)
        spec = {} if role is None else role.template["spec"]
        return bool(spec.get("serviceAccountName") or spec.get("serviceAccount"))

    def configured_replicas(self, role: str) -> int:
        """The number of pods in the spec; 0 if the master decides."""
        return self.spec_field.get("replicaSpecs").get(role).get("replicas").integer(0)

    @property
    def _account(self) -> str:
        return master_service(self.metadata.name)

    @property
    def _flags(self) -> ElasticJobFlags:
        return self.options.flags(ElasticJobFlags)

    @property
    def _master_command(self) -> list[str]:
        namespace, job = self.metadata.namespace, self.metadata.name
        return master_command(platform=self._platform, namespace=namespace, job=job, annotations=self.metadata.annotations)

    @cached_property
    def _brain_variables(self) -> Mapping[str, str]:
        address = self.spec_field.get("brainService").string()
        uses_brain = self.spec_field.get("optimizeMode").string() == "cluster"
        return {"DLROVER_BRAIN_SERVICE_ADDR": address or _BRAIN} if address or uses_brain else {}
