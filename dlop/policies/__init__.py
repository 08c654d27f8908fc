"""Policies of a `DLJob`, which a framework replaces where it differs, and functions for writing them. Pure.

`dlop.policies.mpi` has those of MPI jobs.
"""

from dlop.api.constants import ATTEMPT_LABEL, JOB_NAME_LABEL, REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, format_selector, label_value, object_name, short_hash
from dlop.api.pod_resources import parse_quantities, pod_requests
from dlop.api.scale_plan import Member, MemberRequest, Migration, RoleTarget, ScaleRequest
from dlop.policies.accelerators import GPU, current_resource_name, requested_resources, with_current_resource_names
from dlop.policies.children import ChildObjects
from dlop.policies.ingress import INGRESS_PERMISSIONS, INGRESSES, ingress_body
from dlop.policies.lifecycle import LeaderRole, Lifecycle
from dlop.policies.members import Members
from dlop.policies.naming import Naming
from dlop.policies.ps_lite import ps_lite_variables
from dlop.policies.status import Status

__all__ = [
    "ATTEMPT_LABEL",
    "GPU",
    "INGRESSES",
    "INGRESS_PERMISSIONS",
    "JOB_NAME_LABEL",
    "REPLICA_TYPE_LABEL",
    "ChildObjects",
    "LeaderRole",
    "Lifecycle",
    "Member",
    "MemberRequest",
    "Members",
    "Migration",
    "Naming",
    "RoleTarget",
    "ScaleRequest",
    "Status",
    "current_resource_name",
    "dns_label",
    "format_selector",
    "ingress_body",
    "label_value",
    "object_name",
    "parse_quantities",
    "pod_requests",
    "ps_lite_variables",
    "requested_resources",
    "short_hash",
    "with_current_resource_names",
]
