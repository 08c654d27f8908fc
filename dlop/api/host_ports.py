"""Ports of jobs in the host network: every replica has its own port, because two pods of a job may be on one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlop.api.fields import ManifestField
from dlop.api.spec import JobSpec, RoleSpec
from dlop.api.types import ContainerProperties, ReplicaType

SIZE_PREFIX = "hostPorts="
"""Before the first ports of all roles in the size of a job."""


def with_host_network(
    spec: JobSpec, field: ManifestField, *, types: Iterable[ReplicaType], container: ContainerProperties, unsupported: str
) -> JobSpec:
    """The spec of a job in the host network with the number of its ports. `field` is the field or annotation that asks for it.

    `unsupported` says why the kind ignores it; empty if it does not. This is a warning.
    """
    if unsupported:
        field.warning(f"has no effect: {unsupported}")
        return replace(spec, run_policy=replace(spec.run_policy, host_network=False))
    if container.port is None:
        return spec  # the program does not listen
    shared = {role.name for role in types if role.shares_port}
    return replace(
        spec,
        host_ports=sum(_ports(role, is_shared=role.name in shared) for role in spec.roles),
    )


def port_offsets(spec: JobSpec, types: Iterable[ReplicaType]) -> Mapping[str, range]:
    """By role, the offsets of the ports of its replicas from the first port of the job. A role that shares its port has one offset."""
    shared = {role.name for role in types if role.shares_port}
    offsets: dict[str, range] = {}
    first = 0
    for role in spec.roles:
        offsets[role.name] = range(first, first + _ports(role, is_shared=role.name in shared))
        first = offsets[role.name].stop
    return offsets


def _ports(role: RoleSpec, *, is_shared: bool) -> int:
    """An elastic role has the ports of its maximum, so that no port changes when it is scaled."""
    maximum = role.replicas if role.elastic is None else role.elastic.maximum
    return min(1, maximum) if is_shared else maximum
