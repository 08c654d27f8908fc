"""dlop runs distributed deep-learning jobs on Kubernetes. To add a framework, extend `DLJob`.

`dlop.policies` has the policies that a framework can replace. The models of a spec, and what else needs pydantic, are imported on
first use, so that `import dlop` is fast.
"""

from typing import TYPE_CHECKING, Any

from dlop.api.cached_property import cached_property
from dlop.api.child_objects import Create
from dlop.api.constants import Reason
from dlop.api.fields import ManifestField
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import Blocked, LastFailure, ScaleRecord
from dlop.api.schema import AGE, LAST_FAILURE, STATE_BY_CONDITIONS, Column, ListSchema, RoleFieldsSchema, Schema
from dlop.api.spec import (
    CleanPodPolicy,
    ElasticRange,
    JobSpec,
    Problem,
    RestartPolicy,
    RestartScope,
    RoleSpec,
    RunPolicy,
    SpecError,
)
from dlop.api.structural_schema import rule, with_default, with_rules
from dlop.api.types import (
    ConfigMapKey,
    ContainerProperties,
    DeclarationError,
    FieldRef,
    JobType,
    Options,
    PermissionSet,
    ReplicaType,
    StartAfter,
    StartCondition,
)
from dlop.job import DLJob
from dlop.kube.objects import CustomObject
from dlop.kube.resources import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from dlop.kube.types import JsonObject
from dlop.replica import MemberReplica, Replica

if TYPE_CHECKING:
    from dlop.api.flags import FlagFile, FrameworkFlags
    from dlop.api.spec_models import (
        ApiModel,
        CleanPodPolicyValue,
        ContainerModel,
        Count,
        CronPolicyModel,
        OpenModel,
        PodSpecModel,
        PodTemplate,
        Port,
        ReplicaModel,
        Replicas,
        RestartedPodTemplate,
        RunPolicyModel,
        SchedulingPolicyModel,
    )

_LAZY = {
    "dlop.api.flags": ("FlagFile", "FrameworkFlags"),
    "dlop.api.spec_models": (
        "ApiModel",
        "CleanPodPolicyValue",
        "ContainerModel",
        "Count",
        "CronPolicyModel",
        "OpenModel",
        "PodSpecModel",
        "PodTemplate",
        "Port",
        "ReplicaModel",
        "Replicas",
        "RestartedPodTemplate",
        "RunPolicyModel",
        "SchedulingPolicyModel",
    ),
}
"""Names that are imported on first use, by module."""

__all__ = [
    "AGE",
    "CONFIG_MAPS",
    "HORIZONTAL_POD_AUTOSCALERS",
    "LAST_FAILURE",
    "ROLES",
    "ROLE_BINDINGS",
    "SERVICE_ACCOUNTS",
    "STATE_BY_CONDITIONS",
    "ApiModel",
    "Blocked",
    "CleanPodPolicy",
    "CleanPodPolicyValue",
    "Column",
    "ConfigMapKey",
    "ContainerModel",
    "ContainerProperties",
    "Count",
    "Create",
    "CronPolicyModel",
    "CustomObject",
    "DLJob",
    "DeclarationError",
    "ElasticRange",
    "FieldRef",
    "FlagFile",
    "FrameworkFlags",
    "JobResult",
    "JobSpec",
    "JobType",
    "JsonObject",
    "LastFailure",
    "ListSchema",
    "ManifestField",
    "MemberReplica",
    "OpenModel",
    "Options",
    "Outcome",
    "PermissionSet",
    "Phase",
    "PodSpecModel",
    "PodTemplate",
    "Port",
    "Problem",
    "Progress",
    "Reason",
    "Replica",
    "ReplicaModel",
    "ReplicaProgress",
    "ReplicaState",
    "ReplicaType",
    "Replicas",
    "Resource",
    "RestartPolicy",
    "RestartScope",
    "RestartedPodTemplate",
    "RoleFieldsSchema",
    "RoleProgress",
    "RoleSpec",
    "RunPolicy",
    "RunPolicyModel",
    "ScaleRecord",
    "SchedulingPolicyModel",
    "Schema",
    "SpecError",
    "StartAfter",
    "StartCondition",
    "cached_property",
    "rule",
    "with_default",
    "with_rules",
]


def __getattr__(name: str) -> Any:
    import importlib  # noqa: PLC0415

    module = next((module for module, names in _LAZY.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'dlop' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
