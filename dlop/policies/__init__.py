"""Policies of a `DLJob`, which a framework replaces where it differs, and functions for writing them. Pure."""

from dlop.api.constants import ATTEMPT_LABEL, JOB_NAME_LABEL, REPLICA_TYPE_LABEL
from dlop.api.names import dns_label, format_selector, label_value, object_name, short_hash
from dlop.policies.children import ChildObjects
from dlop.policies.lifecycle import LeaderRole, Lifecycle
from dlop.policies.naming import Naming
from dlop.policies.ps_lite import ps_lite_variables
from dlop.policies.status import Status

__all__ = [
    "ATTEMPT_LABEL",
    "JOB_NAME_LABEL",
    "REPLICA_TYPE_LABEL",
    "ChildObjects",
    "LeaderRole",
    "Lifecycle",
    "Naming",
    "Status",
    "dns_label",
    "format_selector",
    "label_value",
    "object_name",
    "ps_lite_variables",
    "short_hash",
]
