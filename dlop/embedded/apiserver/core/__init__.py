"""Built-in resources, one module per API family.

`go_types.json` defines the fields of their objects. The modules implement defaults, validation and table columns.
"""

from __future__ import annotations

from dlop.embedded.apiserver.core.autoscaling import autoscaling_types
from dlop.embedded.apiserver.core.configmaps_secrets import config_types
from dlop.embedded.apiserver.core.endpoints import endpoint_types
from dlop.embedded.apiserver.core.events import event_types
from dlop.embedded.apiserver.core.leases import lease_types
from dlop.embedded.apiserver.core.namespaces import namespace_types
from dlop.embedded.apiserver.core.nodes import node_types
from dlop.embedded.apiserver.core.pods import pod_types
from dlop.embedded.apiserver.core.priorityclasses import priority_types
from dlop.embedded.apiserver.core.rbac import rbac_types
from dlop.embedded.apiserver.core.serviceaccounts import service_account_types
from dlop.embedded.apiserver.core.services import service_types
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.store import Store

__all__ = ["builtin_types"]


def builtin_types(store: Store | None = None) -> list[ResourceType]:
    """All built-in resources. The types have state, such as allocated cluster IPs, so each server needs a list of its own.

    `store` is used to look up priority classes of pods.
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
