"""Policies of a `DLJob`, which a framework replaces where it differs, and functions for writing them. Pure.

What needs pydantic is imported on first use, so that `import dlop` is fast.
"""

from typing import TYPE_CHECKING, Any

from dlop.api.constants import ATTEMPT_LABEL, JOB_NAME_LABEL, REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, format_selector, label_value, object_name, short_hash
from dlop.api.pod_resources import parse_quantities, pod_requests
from dlop.api.scale_plan import Member, MemberRequest, Migration, RoleTarget, ScaleRequest
from dlop.policies.accelerators import GPU, current_resource_name, requested_resources, with_current_resource_names
from dlop.policies.children import ChildObjects
from dlop.policies.lifecycle import LeaderRole, Lifecycle
from dlop.policies.members import Members
from dlop.policies.mpi.launcher_objects import (
    LauncherObjects,
    config_map_name,
    launcher_account,
    launcher_template,
    names_account,
    worker_names,
)
from dlop.policies.mpi.pods import IDLE_COMMAND, LauncherPods
from dlop.policies.mpi.scripts import HOSTFILE, REMOTE_SHELL, hostfile, mpi_path, remote_shell
from dlop.policies.naming import Naming
from dlop.policies.ps_lite import ps_lite_variables
from dlop.policies.status import Status

if TYPE_CHECKING:
    from dlop.policies.mpi.models import MainContainer, MPIFlags

_LAZY = ("MPIFlags", "MainContainer")

__all__ = [
    "ATTEMPT_LABEL",
    "GPU",
    "HOSTFILE",
    "IDLE_COMMAND",
    "JOB_NAME_LABEL",
    "REMOTE_SHELL",
    "REPLICA_TYPE_LABEL",
    "ChildObjects",
    "LauncherObjects",
    "LauncherPods",
    "LeaderRole",
    "Lifecycle",
    "MPIFlags",
    "MainContainer",
    "Member",
    "MemberRequest",
    "Members",
    "Migration",
    "Naming",
    "RoleTarget",
    "ScaleRequest",
    "Status",
    "config_map_name",
    "current_resource_name",
    "dns_label",
    "format_selector",
    "hostfile",
    "label_value",
    "launcher_account",
    "launcher_template",
    "mpi_path",
    "names_account",
    "object_name",
    "parse_quantities",
    "pod_requests",
    "ps_lite_variables",
    "remote_shell",
    "requested_resources",
    "short_hash",
    "with_current_resource_names",
    "worker_names",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlop.policies.mpi import models  # noqa: PLC0415

    return getattr(models, name)
