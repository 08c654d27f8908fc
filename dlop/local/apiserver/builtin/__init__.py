"""The resources that the server has from the start, a small file for each family.

What their objects look like is read from `shapes.json`; what the server does with them (defaults, validation, table
rows) is written down here as far as controllers and `kubectl` can tell the difference.
"""

from __future__ import annotations

from dlop.local.apiserver.builtin.autoscaling import autoscaling_types
from dlop.local.apiserver.builtin.configs import config_types
from dlop.local.apiserver.builtin.endpoints import endpoint_types
from dlop.local.apiserver.builtin.events import event_types
from dlop.local.apiserver.builtin.leases import lease_types
from dlop.local.apiserver.builtin.namespaces import namespace_types
from dlop.local.apiserver.builtin.nodes import node_types
from dlop.local.apiserver.builtin.pods import pod_types
from dlop.local.apiserver.builtin.priorities import priority_types
from dlop.local.apiserver.builtin.rbac import rbac_types
from dlop.local.apiserver.builtin.serviceaccounts import service_account_types
from dlop.local.apiserver.builtin.services import service_types
from dlop.local.apiserver.store import Store
from dlop.local.apiserver.types import ResourceType

__all__ = ["builtin_types"]


def builtin_types(store: Store | None = None) -> list[ResourceType]:
    """Every built-in resource, for the server of one store: types that hand out addresses start anew with each call.

    Without a store nothing can be looked up: pods are then taken for ones without a known priority class.
    """
    return [
        *namespace_types(),
        *pod_types(store or Store()),
        *service_types(),
        *config_types(),
        *service_account_types(),
        *event_types(),
        *node_types(),
        *endpoint_types(),
        *lease_types(),
        *rbac_types(),
        *autoscaling_types(),
        *priority_types(),
    ]
