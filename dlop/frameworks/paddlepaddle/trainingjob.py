"""TrainingJob of paddlepaddle.org/v1: PaddlePaddle with parameter servers, trainers, and a master for fault-tolerant training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from dlop import (
    CleanPodPolicy,
    FieldRef,
    FrameworkFlags,
    JobResult,
    JobType,
    JsonObject,
    Phase,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    cached_property,
)
from dlop.frameworks.paddlepaddle.base import ParameterServerJob, ParameterServerLifecycle, decisive_trainers
from dlop.frameworks.paddlepaddle.trainingjob_pods import read_envs, read_mode
from dlop.frameworks.paddlepaddle.trainingjob_schema import TrainingJobModel, TrainingJobSchema, is_fault_tolerant
from dlop.frameworks.paddlepaddle.trainingjob_status import RESTART_LIMIT_EXCEEDED, TrainingJobStatus


class TrainingJobFlags(FrameworkFlags):
    """Flags of the operator for TrainingJobs."""

    paddle_etcd_image: str = Field(
        default="m3ngyang/etcd:v3.2.1", min_length=1, description="Image of etcd, which runs next to the master of a TrainingJob."
    )
    paddle_restart_limit: int = Field(
        default=5, ge=1, description="Number of restarts of a container of a parameter server at which a TrainingJob fails."
    )
    paddle_autoclean: bool = Field(
        default=False, description="Whether all pods of a finished TrainingJob are deleted if runPolicy.cleanPodPolicy is not set."
    )


class TrainingJobLifecycle(ParameterServerLifecycle["TrainingJob"]):
    """A fault-tolerant job finishes with its last trainer, and succeeds if any trainer has succeeded."""

    def clean_pod_policy(self, job: TrainingJob, *, succeeded: bool) -> CleanPodPolicy:
        """`runPolicy.cleanPodPolicy` takes precedence over the flag."""
        is_set = bool(job.spec_field.get("runPolicy").get("cleanPodPolicy").value)
        return (
            CleanPodPolicy.ALL if job.operator_flags.paddle_autoclean and not is_set else super().clean_pod_policy(job, succeeded=succeeded)
        )

    def evaluate(self, job: TrainingJob, progress: Progress) -> JobResult | None:
        """The trainers decide before the restart limit does."""
        result = _evaluate_last_trainer(progress) if job.is_fault_tolerant else super().evaluate(job, progress)
        return result or next(_exceeded_restart_limits(job, progress), None)


def _evaluate_last_trainer(progress: Progress) -> JobResult | None:
    trainers = progress.role("trainer")
    decisive = [] if trainers is None else decisive_trainers(trainers)
    if not decisive or any(replica.state not in (ReplicaState.SUCCEEDED, ReplicaState.FAILED) for replica in decisive):
        return None
    has_succeeded = any(replica.state is ReplicaState.SUCCEEDED for replica in decisive)
    return JobResult(succeeded=True) if has_succeeded else JobResult(succeeded=False, failed_replica=decisive[0])


def _exceeded_restart_limits(job: TrainingJob, progress: Progress) -> Iterator[JobResult]:
    servers, limit = progress.role("pserver"), job.operator_flags.paddle_restart_limit
    for replica in () if servers is None else servers.replicas:
        statuses = () if replica.pod is None else replica.pod.status.container_statuses
        restarts = max((status.restart_count for status in statuses), default=0)
        if restarts >= limit:
            message = (
                f"pserver {replica.index} was restarted {restarts} times, which reaches the limit of the operator (--paddle-restart-limit)"
            )
            yield JobResult(succeeded=False, failed_replica=replica, reason=RESTART_LIMIT_EXCEEDED, message=message)


class TrainingJob(ParameterServerJob):
    """A PaddlePaddle job with parameter servers and trainers. A fault-tolerant job has a master, and succeeds if any trainer does."""

    job_type = JobType(group="paddlepaddle.org", version="v1", kind="TrainingJob", short_names=("tj",), served_versions=("v1alpha1",))
    replica_types = (
        ReplicaType("master", minimum=1, maximum=1, restart_policy=RestartPolicy.ALWAYS, required_for_success=False),
        ReplicaType("pserver", restart_policy=RestartPolicy.ALWAYS, required_for_success=False),
        ReplicaType("trainer", restart_policy=RestartPolicy.NEVER, required=True),
    )
    schema = TrainingJobSchema(model=TrainingJobModel)
    lifecycle = TrainingJobLifecycle()
    status = TrainingJobStatus(
        phases={
            Phase.CREATED: "Creating",
            Phase.RUNNING: "Running",
            Phase.RESTARTING: "Running",
            Phase.SUSPENDED: "Suspended",
            Phase.SUCCEEDED: "Succeed",
            Phase.FAILED: "Failed",
            Phase.INVALID: "Failed",
        },
        final_phases={"Succeed": Phase.SUCCEEDED, "Failed": Phase.FAILED, "failed": Phase.FAILED, "Timeout": Phase.FAILED},
        reasons={Phase.RUNNING: "all pods are running", Phase.SUCCEEDED: "all trainer instances have done"},
    )
    flags = TrainingJobFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]:
        """The variables of the user come last, so that they can contain the others as `$(NAME)`."""
        own, envs = self._peer_variables, read_envs(self.spec_field, replica.role)
        return {**super().get_environment_variables(replica), "POD_NAME": FieldRef("metadata.name"), **own, **envs}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Sets the image of etcd."""
        if replica.role != "master":
            return pod
        master, etcd = pod["spec"]["containers"]
        containers = [master, {**etcd, "image": self.operator_flags.paddle_etcd_image}]
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    @property
    def operator_flags(self) -> TrainingJobFlags:
        return self.options.flags(TrainingJobFlags)

    @cached_property
    def is_fault_tolerant(self) -> bool:
        return is_fault_tolerant(self.spec_field)

    @cached_property
    def _peer_variables(self) -> dict[str, str]:
        """The master of a fault-tolerant job, and the trainers of a job in which they reach each other."""
        mode, master = read_mode(self.spec_field), self.host("master")
        variables = {"MASTER_IP": master, "ETCD_IP": master} if master else {}
        if mode.is_collective and not mode.is_local:
            variables["PADDLE_TRAINER_IPS"] = self.host_list("trainer", range(self.minimum_replicas("trainer")))
        return variables
