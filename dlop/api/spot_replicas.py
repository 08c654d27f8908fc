"""Spot replicas: the last replicas of a role run on cheaper nodes, which the provider may take back at any time.

A role sets them with `spotReplicas` or with an annotation. Their disruptions are counted apart. After `maxDisruptions` of them in a role,
the replicas are created on demand, that is, without the options of spot replicas. This is decided by the spec and the record alone.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from enum import StrEnum

from dlop.api.constants import SPOT_ANNOTATION
from dlop.api.fields import ManifestField
from dlop.api.pod_template import extend_template
from dlop.api.record import Record
from dlop.api.role_annotations import with_values_by_role
from dlop.api.spec import JobSpec, RoleSpec, SpotReplicas
from dlop.api.types import ReplicaType
from dlop.kube.types import JsonObject

_MAX_INT32 = 2**31 - 1


class TolerationOperator(StrEnum):
    EXISTS = "Exists"
    EQUAL = "Equal"
    LT = "Lt"
    GT = "Gt"


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


# --- manifests -----------------------------------------------------------------------------------------------------------


def with_spot_replicas(role: RoleSpec, field: ManifestField) -> RoleSpec:
    """The role with the spot replicas in `spotReplicas`; the same role if the field is absent."""
    if field.is_absent:
        return role
    field.object()
    return replace(role, spot=_read_spot_replicas(field, count=field.get("replicas").integer(0)))


def with_spot_replica_spec(role: RoleSpec, field: ManifestField) -> RoleSpec:
    """The role with the spot replicas in KubeDL's `spotReplicaSpec`, of which there may be more than replicas."""
    if field.is_absent:
        return role
    field.object()
    count = field.get("spotReplicaNumber").integer(0)
    if role.spot is not None:
        field.warning(f"has no effect, because {role.spot.path} takes precedence")
        return role
    if count > role.replicas:
        field.get("spotReplicaNumber").warning(f"is {count}, but {role.name} has only {role.replicas} replicas; all are spot replicas")
    return replace(role, spot=_read_spot_replicas(field, count=min(count, role.replicas)))


def _read_spot_replicas(field: ManifestField, *, count: int) -> SpotReplicas:
    return SpotReplicas(
        count=count,
        priority_class=field.get("priorityClassName").string(),
        labels=_string_map(field.get("labels")),
        tolerations=tuple(_toleration(entry) for entry in field.get("tolerations").items()),
        node_selector=_string_map(field.get("nodeSelector")),
        max_disruptions=field.get("maxDisruptions").optional_integer(minimum=1, maximum=_MAX_INT32),
        path=field.path,
    )


def with_spot_annotation(spec: JobSpec, field: ManifestField, types: tuple[ReplicaType, ...]) -> JobSpec:
    """The spec with the spot replicas in an object by role. `spotReplicas` of a role takes precedence."""
    return with_values_by_role(
        spec, field, types, with_value=with_spot_replicas, set_at=lambda role: "" if role.spot is None else role.spot.path
    )


def check_spot_replicas(spec: JobSpec, manifest: ManifestField, *, member_roles: Container[str]) -> None:
    """Report roles with more spot replicas than replicas, and roles whose pods the master of the job manages (`member_roles`)."""
    for role in spec.roles:
        spot = role.spot
        if spot is None or not spot.count:
            continue
        field = ManifestField(spot.path, None, manifest.problems)
        if role.name in member_roles:
            field.error(f"is not supported, because the master of the job manages the pods of {role.name}; remove it")
        elif spot.count > (limit := role.replicas if role.elastic is None else role.elastic.maximum):
            field.error(f"has {spot.count} replicas, but {role.name} has only {limit}; use at most {limit}")


def _string_map(field: ManifestField) -> dict[str, str]:
    field.object()
    return {name: value.string() for name, value in field.entries() if not value.is_absent}


def _toleration(field: ManifestField) -> JsonObject:
    """Validates what all versions of Kubernetes require. Other fields are kept."""
    toleration = field.object()
    if field.value is not None and not isinstance(field.value, dict):
        return toleration
    operator = field.get("operator").choice(TolerationOperator, TolerationOperator.EQUAL)
    field.get("effect").choice(TaintEffect, TaintEffect.NO_SCHEDULE)
    field.get("value").string()
    if not field.get("key").string() and field.get("key").value in (None, "") and operator is not TolerationOperator.EXISTS:
        field.error("must have a key; only the operator Exists tolerates all taints")
    field.get("tolerationSeconds").optional_integer(minimum=-(2**63), maximum=2**63 - 1)
    return toleration


# --- pods ----------------------------------------------------------------------------------------------------------------


def is_spot_replica(role: RoleSpec, index: int, record: Record) -> bool:
    """Whether the next pod of a replica is a spot pod."""
    spot = role.spot
    return spot is not None and index >= role.replicas - spot.count and not has_fallen_back(spot, disruptions_of(role, record))


def disruptions_of(role: RoleSpec, record: Record) -> int:
    """The disruptions of the spot replicas of a role."""
    return record.spot_disruptions.get(role.name, 0)


def has_fallen_back(spot: SpotReplicas, disruptions: int) -> bool:
    """Whether spot replicas are created on demand after this number of disruptions."""
    return spot.max_disruptions is not None and disruptions >= spot.max_disruptions


def with_spot_options(template: JsonObject, spot: SpotReplicas) -> JsonObject:
    """A copy of a pod template with the options of spot replicas, which override those of the template."""
    return extend_template(
        template,
        labels=spot.labels,
        annotations={SPOT_ANNOTATION: "true"},
        node_selector=spot.node_selector,
        tolerations=spot.tolerations,
        priority_class=spot.priority_class,
    )
