"""dlop runs distributed deep-learning jobs on Kubernetes. A new framework is one class: extend `DLJob`."""

from dlop.api.child_objects import Creation
from dlop.api.fields import Field
from dlop.api.phase import Outcome, Phase, Verdict
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, RestartPolicy, RestartScope, RoleSpec, RunPolicy, SpecError
from dlop.api.types import Accelerator, ContainerProperties, DeclarationError, JobType, Options, ReplicaType, Rights
from dlop.job import DLJob
from dlop.replica import Replica

__all__ = [
    "Accelerator",
    "CleanPodPolicy",
    "ContainerProperties",
    "Creation",
    "DLJob",
    "DeclarationError",
    "Field",
    "JobSpec",
    "JobType",
    "LastFailure",
    "Options",
    "Outcome",
    "Phase",
    "Problem",
    "Progress",
    "Replica",
    "ReplicaProgress",
    "ReplicaState",
    "ReplicaType",
    "RestartPolicy",
    "RestartScope",
    "Rights",
    "RoleProgress",
    "RoleSpec",
    "RunPolicy",
    "SpecError",
    "Verdict",
]
