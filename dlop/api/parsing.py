"""The common spec format: `replicaSpecs: {Worker: {replicas, restartPolicy, template}}` and `runPolicy`.

`dlop.api.schema` calls these functions. A kind with another format extends `Schema`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlop.api.code_sync import read_code_sources
from dlop.api.cron import read_cron_policy
from dlop.api.fields import ManifestField
from dlop.api.pod_resources import parse_quantities
from dlop.api.spec import CleanPodPolicy, RestartPolicy, RestartScope, RoleSpec, RunPolicy, SchedulingPolicy
from dlop.api.tensorboard import read_tensorboard
from dlop.api.types import ContainerProperties, ReplicaType
from dlop.kube.types import JsonObject

MAX_REPLICAS = 10_000
"""Per role. Limits the operator's memory if a user mistypes the number."""


def read_run_policy(
    field: ManifestField, *, restart_scope: RestartScope, clean_pod_policy: CleanPodPolicy, scheduling: ManifestField | None = None
) -> RunPolicy:
    """Reads `spec.runPolicy`. `restart_scope` and `clean_pod_policy` are the defaults of the kind.

    `scheduling` is the field with the options of gang scheduling if it is elsewhere.
    """
    return RunPolicy(
        backoff_limit=field.get("backoffLimit").optional_integer(),
        disruption_limit=field.get("disruptionLimit").optional_integer(),
        active_deadline_seconds=field.get("activeDeadlineSeconds").optional_integer(),
        start_deadline_seconds=field.get("startDeadlineSeconds").optional_integer(),
        ttl_seconds_after_finished=field.get("ttlSecondsAfterFinished").optional_integer(),
        clean_pod_policy=field.get("cleanPodPolicy").choice(CleanPodPolicy, clean_pod_policy),
        restart_scope=field.get("restartScope").choice(RestartScope, restart_scope),
        suspend=field.get("suspend").boolean(),
        managed_by=field.get("managedBy").string() or None,
        scheduling=read_scheduling_policy(scheduling or field.get("schedulingPolicy")),
        autoscale=field.get("autoscale").boolean(),
        host_network=field.get("hostNetwork").boolean(),
        code_sync=read_code_sources(field.get("codeSync")),
        cron_policy=read_cron_policy(field.get("cronPolicy")),
        tensorboard=read_tensorboard(field.get("tensorBoard")),
    )


def read_scheduling_policy(field: ManifestField) -> SchedulingPolicy:
    """Reads the options of gang scheduling. They are validated even if gang scheduling is disabled."""
    if field.is_absent:
        return SchedulingPolicy()
    field.object()
    resources = field.get("minResources")
    for _, quantity in resources.entries():
        _check_quantity(quantity)
    return SchedulingPolicy(
        min_available=field.get("minAvailable").optional_integer(),
        min_resources=resources.object(),
        queue=field.get("queue").string(),
        priority_class=field.get("priorityClass").string(),
        priority=field.get("priority").optional_integer(minimum=-(2**31), maximum=2**31 - 1),
        schedule_timeout_seconds=field.get("scheduleTimeoutSeconds").optional_integer(),
    )


def _check_quantity(field: ManifestField) -> None:
    if not parse_quantities({field.path: field.value}):
        field.error("is not a quantity; use a value like 500m or 2Gi")


def read_roles(field: ManifestField, types: Iterable[ReplicaType], container: ContainerProperties) -> tuple[RoleSpec, ...]:
    """Reads `spec.replicaSpecs`. Role names are case-insensitive."""
    types = tuple(types)
    known = {role.name.lower(): role for role in types}
    roles: dict[str, RoleSpec] = {}
    field.object()
    for name, entry in field.entries():
        role = known.get(name.lower())
        if role is None:
            entry.error(f"is not a role of this kind; must be one of {', '.join(known.name for known in types)}")
        elif role.name in roles:
            entry.error(f"duplicates the role {role.name}; remove one of the two")
        else:
            roles[role.name] = read_role(entry, role, container)
    return ordered_roles(field, roles, types)


def read_listed_roles(
    field: ManifestField,
    types: Iterable[ReplicaType],
    container: ContainerProperties,
    *,
    type_field: str,
    default_type: str = "",
    port_field: str = "",
) -> tuple[RoleSpec, ...]:
    """Reads roles from a list whose entries name their role in `type_field`, the format of early operators.

    The restart policy is read from the pod template, because such entries do not have their own.
    """
    types = tuple(types)
    known = {role.name: role for role in types}
    roles: dict[str, RoleSpec] = {}
    for entry in field.items():
        entry.object()
        name = entry.get(type_field).string() or default_type
        if name not in known:
            entry.get(type_field).error(f"must be one of {', '.join(known)}, got {name!r:.60}")
        elif name in roles:
            entry.get(type_field).error(f"duplicates the role {name}; only one entry per role is allowed")
        else:
            roles[name] = _read_listed_role(entry, known[name], container, port_field=port_field)
    return ordered_roles(field, roles, types)


def _read_listed_role(field: ManifestField, role: ReplicaType, container: ContainerProperties, *, port_field: str) -> RoleSpec:
    policy = field.get("template").get("spec").get("restartPolicy").choice(RestartPolicy, role.restart_policy)
    return RoleSpec(
        name=role.name,
        replicas=read_replicas(field.get("replicas"), role),
        template=read_template(field.get("template"), container),
        restart_policy=policy,
        container=container.name,
        port=field.get(port_field).optional_integer(minimum=1, maximum=65535) if port_field else None,
    )


def ordered_roles(field: ManifestField, roles: Mapping[str, RoleSpec], types: Iterable[ReplicaType]) -> tuple[RoleSpec, ...]:
    """Roles in the order of the kind's replica types. Reports missing required roles."""
    if not roles and not field.problems:
        field.error("must contain at least one role with replicas and a template")
    for role in types:
        if role.required and role.name not in roles and roles:
            field.error(f"must contain the role {role.name}")
    return tuple(roles[role.name] for role in types if role.name in roles)


def read_role(field: ManifestField, role: ReplicaType, container: ContainerProperties) -> RoleSpec:
    """Reads one entry of `spec.replicaSpecs`."""
    field.object()
    template = read_template(field.get("template"), container)
    return RoleSpec(
        name=role.name,
        replicas=read_replicas(field.get("replicas"), role),
        template=template,
        restart_policy=field.get("restartPolicy").choice(RestartPolicy, role.restart_policy),
        container=container.name,
        port=named_port(template, container),
    )


def read_replicas(field: ManifestField, role: ReplicaType) -> int:
    """Reads the number of replicas of a role."""
    maximum = MAX_REPLICAS if role.maximum is None else role.maximum
    return field.integer(role.default_replicas, minimum=role.minimum, maximum=maximum)


def read_template(field: ManifestField, container: ContainerProperties) -> JsonObject:
    """Reads a pod template. Validates only the parts that dlop extends; the API server validates the rest."""
    if field.is_absent:
        field.error("is missing; add the pod template of this role")
        return {}
    template = field.object()
    _check_metadata(field.get("metadata"))
    field.get("spec").object()
    _check_named(field.get("spec").get("volumes"))
    for init_container in field.get("spec").get("initContainers").items():
        init_container.object()
    containers = field.get("spec").get("containers")
    names = [_check_container(entry) for entry in containers.items()]
    if not names:
        containers.error("must have at least one container")
    elif container.name and container.name not in names and (container.required or len(names) > 1):
        containers.error(f"must have a container named {container.name!r}; got {', '.join(map(repr, names))}")
    return template


def _check_metadata(field: ManifestField) -> None:
    field.object()
    for name in ("labels", "annotations"):
        field.get(name).object()
        for _, value in field.get(name).entries():
            value.string()


def _check_named(field: ManifestField) -> None:
    for item in field.items():
        if not item.get("name").string():
            item.error("must have a name")


def _check_container(field: ManifestField) -> str:
    """Validates one container and returns its name."""
    field.object()
    for name in ("name", "image"):
        if not field.get(name).string():
            field.get(name).error("is missing")
    _check_named(field.get("env"))
    _check_named(field.get("volumeMounts"))
    for port in field.get("ports").items():
        port.get("name").string()
        if port.get("containerPort").optional_integer(minimum=1, maximum=65535) is None:
            port.error("must have a containerPort from 1 to 65535")
    return field.get("name").string()


def training_container(containers: list[JsonObject], properties: ContainerProperties) -> JsonObject:
    """The container that runs the training program: the one named in `properties`, otherwise the first."""
    return next((container for container in containers if container.get("name") == properties.name), containers[0])


def named_port(template: JsonObject, properties: ContainerProperties) -> int | None:
    """The port of the training container that is named `properties.port_name`; None if the template does not have it."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers or not all(isinstance(container, dict) for container in containers):
        return None
    ports = training_container(containers, properties).get("ports")
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("name") == properties.port_name and isinstance(port.get("containerPort"), int):
            return int(port["containerPort"])
    return None


def service_port(port: JsonObject) -> JsonObject:
    """Converts a named container port to a service port."""
    converted = {"name": port["name"], "port": port["containerPort"]}
    return converted | {"protocol": port["protocol"]} if "protocol" in port else converted
