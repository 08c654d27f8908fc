"""Service accounts: names for pods to run under."""

from __future__ import annotations

from dlop.kube.resources import SERVICE_ACCOUNTS
from dlop.local.apiserver.builtin.base import builtin_type, columns
from dlop.local.apiserver.types import ResourceType


def service_account_types() -> list[ResourceType]:
    """The type of service accounts."""
    return [builtin_type(SERVICE_ACCOUNTS, "core.v1.ServiceAccount", short_names=("sa",), columns=columns(), returns_deleted=True)]
