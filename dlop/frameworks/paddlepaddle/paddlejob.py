"""PaddleJob of paddlepaddle.org/v1: PaddlePaddle with parameter servers and trainers."""

from __future__ import annotations

from dataclasses import dataclass

from dlop import CleanPodPolicy, JobType, JsonObject, ManifestField, Phase, ReplicaType, RestartPolicy
from dlop.frameworks.paddlepaddle.base import ParameterServerJob, ParameterServerLifecycle, ParameterServerStatus
from dlop.frameworks.paddlepaddle.fields import read_ports
from dlop.frameworks.paddlepaddle.pods import job_ports, main_container, pod_spec
from dlop.frameworks.paddlepaddle.schema import JobModel, ParameterServerSchema, PserverModel, TrainerModel

_IMAGE = "paddlepaddle/paddlecloud-job"
_COMMANDS = {"pserver": ("paddle_k8s", "start_pserver"), "trainer": ("paddle_k8s", "start_trainer", "fluid")}
"""Programs of the image, which start the program of the user."""


class PaddleJobModel(JobModel):
    """Specification of a PaddleJob."""

    pserver: PserverModel | None = None
    """Parameter servers."""
    trainer: TrainerModel
    """Trainers."""


@dataclass(frozen=True, kw_only=True)
class PaddleJobSchema(ParameterServerSchema):
    """All pods run a program of the image and have the same ports."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.ALL

    def read_ports(self, spec: ManifestField, role: str) -> range:
        return read_ports(spec)

    def read_pod_template(self, spec: ManifestField, role: str) -> JsonObject:
        container = main_container(spec, role, image=_IMAGE, command=_COMMANDS[role], ports=job_ports(read_ports(spec)))
        return {"spec": pod_spec(spec, role, container)}


class PaddleJobStatus(ParameterServerStatus["PaddleJob"]):
    """The old operator wrote roles in capital letters."""

    def resource_type(self, role: str) -> str:
        return role.upper()


class PaddleJob(ParameterServerJob):
    """A PaddlePaddle job with parameter servers and trainers. It succeeds when all trainers succeed; parameter servers never finish."""

    job_type = JobType(group="paddlepaddle.org", version="v1", kind="PaddleJob", short_names=("pj",))
    replica_types = (
        ReplicaType("pserver", restart_policy=RestartPolicy.ALWAYS, required_for_success=False),
        ReplicaType("trainer", restart_policy=RestartPolicy.NEVER, required=True),
    )
    schema = PaddleJobSchema(model=PaddleJobModel)
    lifecycle = ParameterServerLifecycle()
    status = PaddleJobStatus(
        phases={
            Phase.CREATED: "creating",
            Phase.RUNNING: "running",
            Phase.RESTARTING: "running",
            Phase.SUSPENDED: "suspended",
            Phase.SUCCEEDED: "succeeded",
            Phase.FAILED: "failed",
            Phase.INVALID: "failed",
        },
        final_phases={"succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED},
        reasons={Phase.SUCCEEDED: "all trainer have succeeded!", Phase.FAILED: "at least one trainer failed!"},
    )
