"""dlop runs distributed deep-learning jobs on Kubernetes. To add a framework, extend `DLJob`."""

from dlop.api.child_objects import Create
from dlop.api.fields import ManifestField
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure
from dlop.api.spec import CleanPodPolicy, JobSpec, Problem, RestartPolicy, RestartScope, RoleSpec, RunPolicy, SpecError
from dlop.api.types import Accelerator, ContainerProperties, DeclarationError, JobType, Options, PermissionSet, ReplicaType
from dlop.job import DLJob
from dlop.replica import Replica

__all__ = [
    "Accelerator",
    "CleanPodPolicy",
    "ContainerProperties",
    "Create",
    "DLJob",
    "DeclarationError",
    "JobResult",
    "JobSpec",
    "JobType",
    "LastFailure",
    "ManifestField",
    "Options",
    "Outcome",
    "PermissionSet",
    "Phase",
    "Problem",
    "Progress",
    "Replica",
    "ReplicaProgress",
    "ReplicaState",
    "ReplicaType",
    "RestartPolicy",
    "RestartScope",
    "RoleProgress",
    "RoleSpec",
    "RunPolicy",
    "SpecError",
]
