"""The common dialect of specs: `replicaSpecs: {Worker: {replicas, restartPolicy, template}}` and `runPolicy`.

Kinds with another shape read their own (`DLJob.read_spec`) and use the pieces here for what they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlop.api.fields import ManifestField
from dlop.api.pod_resources import amounts
from dlop.api.spec import CleanPodPolicy, RestartPolicy, RestartScope, RoleSpec, RunPolicy, SchedulingPolicy
from dlop.api.types import ContainerProperties, ReplicaType
from dlop.kube.types import JsonObject

MOST_REPLICAS = 10_000
"""Of one role. A slip of the finger must not fill the operator's memory."""


def read_run_policy(found: ManifestField, *, restart_scope: RestartScope, clean_pod_policy: CleanPodPolicy) -> RunPolicy:
    """`spec.runPolicy`, with the defaults of the kind."""
    return RunPolicy(
        backoff_limit=found.get("backoffLimit").optional_integer(),
        disruption_limit=found.get("disruptionLimit").optional_integer(),
        active_deadline_seconds=found.get("activeDeadlineSeconds").optional_integer(),
        start_deadline_seconds=found.get("startDeadlineSeconds").optional_integer(),
        ttl_seconds_after_finished=found.get("ttlSecondsAfterFinished").optional_integer(),
        clean_pod_policy=found.get("cleanPodPolicy").choice(CleanPodPolicy, clean_pod_policy),
        restart_scope=found.get("restartScope").choice(RestartScope, restart_scope),
        suspend=found.get("suspend").flag(),
        managed_by=found.get("managedBy").text() or None,
        scheduling=read_scheduling_policy(found.get("schedulingPolicy")),
    )


def read_scheduling_policy(found: ManifestField) -> SchedulingPolicy:
    """`spec.runPolicy.schedulingPolicy`. It is read whether or not there is a scheduler that cares."""
    if found.is_absent:
        return SchedulingPolicy()
    found.mapping()
    resources = found.get("minResources")
    for _, amount in resources.entries():
        _check_quantity(amount)
    return SchedulingPolicy(
        min_available=found.get("minAvailable").optional_integer(),
        min_resources=resources.mapping(),
        queue=found.get("queue").text(),
        priority_class=found.get("priorityClass").text(),
        schedule_timeout_seconds=found.get("scheduleTimeoutSeconds").optional_integer(),
    )


def _check_quantity(found: ManifestField) -> None:
    if not amounts({found.path: found.value}):
        found.wrong("is no quantity; write one like 500m or 2Gi")


def read_roles(found: ManifestField, types: Iterable[ReplicaType], container: ContainerProperties) -> tuple[RoleSpec, ...]:
    """`spec.replicaSpecs`: roles by name, whatever the case of its letters."""
    types = tuple(types)
    known = {role.name.lower(): role for role in types}
    roles: dict[str, RoleSpec] = {}
    found.mapping()
    for name, entry in found.entries():
        role = known.get(name.lower())
        if role is None:
            entry.wrong(f"is not a role of this kind; write one of {', '.join(each.name for each in types)}")
        elif role.name in roles:
            entry.wrong(f"is the role {role.name} a second time; keep one of the two")
        else:
            roles[role.name] = read_role(entry, role, container)
    return in_order(found, roles, types)


def read_listed_roles(
    found: ManifestField,
    types: Iterable[ReplicaType],
    container: ContainerProperties,
    *,
    type_field: str,
    default_type: str = "",
    port_field: str = "",
) -> tuple[RoleSpec, ...]:
    """Roles as a list whose entries name their role in a field, as the early operators had it.

    Such entries have no restart policy of their own; it stands in the template, as in a pod.
    """
    types = tuple(types)
    known = {role.name: role for role in types}
    roles: dict[str, RoleSpec] = {}
    for entry in found.items():
        entry.mapping()
        name = entry.get(type_field).text() or default_type
        if name not in known:
            entry.get(type_field).wrong(f"must be one of {', '.join(known)}, not {name!r:.60}")
        elif name in roles:
            entry.get(type_field).wrong(f"is {name} a second time; there may be one entry for each role")
        else:
            roles[name] = _read_listed_role(entry, known[name], container, port_field=port_field)
    return in_order(found, roles, types)


def listed_at(found: ManifestField, role: str, *, type_field: str, default_type: str = "") -> int | None:
    """At which place of such a list a role stands, if it does."""
    names = [entry.get(type_field).text() or default_type for entry in found.items()]
    return names.index(role) if role in names else None


def _read_listed_role(found: ManifestField, role: ReplicaType, container: ContainerProperties, *, port_field: str) -> RoleSpec:
    policy = found.get("template").get("spec").get("restartPolicy").choice(RestartPolicy, role.restart_policy)
    return RoleSpec(
        name=role.name,
        replicas=read_replicas(found.get("replicas"), role),
        template=read_template(found.get("template"), container),
        restart_policy=policy,
        container=container.name,
        port=found.get(port_field).optional_integer(minimum=1, maximum=65535) if port_field else None,
    )


def in_order(found: ManifestField, roles: Mapping[str, RoleSpec], types: Iterable[ReplicaType]) -> tuple[RoleSpec, ...]:
    """Roles in the order of the kind's replica types. Those that every job must have are missed here."""
    if not roles and not found.problems:
        found.wrong("must name at least one role with its replicas and its template")
    for role in types:
        if role.required and role.name not in roles and roles:
            found.wrong(f"must have the role {role.name}")
    return tuple(roles[role.name] for role in types if role.name in roles)


def read_role(found: ManifestField, role: ReplicaType, container: ContainerProperties) -> RoleSpec:
    """One role: how many, restarted when, and the template."""
    found.mapping()
    template = read_template(found.get("template"), container)
    return RoleSpec(
        name=role.name,
        replicas=read_replicas(found.get("replicas"), role),
        template=template,
        restart_policy=found.get("restartPolicy").choice(RestartPolicy, role.restart_policy),
        container=container.name,
        port=named_port(template, container),
    )


def read_replicas(found: ManifestField, role: ReplicaType) -> int:
    """How many replicas of a role there are to be."""
    most = MOST_REPLICAS if role.maximum is None else role.maximum
    return found.integer(role.default_replicas, minimum=role.minimum, maximum=most)


def read_template(found: ManifestField, container: ContainerProperties) -> JsonObject:
    """A pod template, checked as far as dlop adds to it. The rest is for the API server to judge."""
    if found.is_absent:
        found.wrong("is missing; write the pod template of this role")
        return {}
    template = found.mapping()
    _check_metadata(found.get("metadata"))
    found.get("spec").mapping()
    _check_named(found.get("spec").get("volumes"))
    for each in found.get("spec").get("initContainers").items():
        each.mapping()
    containers = found.get("spec").get("containers")
    names = [_check_container(each) for each in containers.items()]
    if not names:
        containers.wrong("must have at least one container")
    elif container.name and container.name not in names and (container.required or len(names) > 1):
        containers.wrong(f"must have a container named {container.name!r}; the ones there are: {', '.join(map(repr, names))}")
    return template


def _check_metadata(found: ManifestField) -> None:
    found.mapping()
    for name in ("labels", "annotations"):
        found.get(name).mapping()
        for _, value in found.get(name).entries():
            value.text()


def _check_named(found: ManifestField) -> None:
    for each in found.items():
        if not each.get("name").text():
            each.wrong("must have a name")


def _check_container(found: ManifestField) -> str:
    found.mapping()
    for name in ("name", "image"):
        if not found.get(name).text():
            found.get(name).wrong("is missing")
    _check_named(found.get("env"))
    _check_named(found.get("volumeMounts"))
    for port in found.get("ports").items():
        port.get("name").text()
        if port.get("containerPort").optional_integer(minimum=1, maximum=65535) is None:
            port.wrong("must have a containerPort from 1 to 65535")
    return found.get("name").text()


def training_container(containers: list[JsonObject], container: ContainerProperties) -> JsonObject:
    """The container that takes part in the job: the one of that name, else the first. Of several, one has the name."""
    return next((each for each in containers if each.get("name") == container.name), containers[0])


def named_port(template: JsonObject, container: ContainerProperties) -> int | None:
    """The port that the user has given the name of the kind's port, if there is one."""
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers or not all(isinstance(each, dict) for each in containers):
        return None
    ports = training_container(containers, container).get("ports")
    for port in ports if isinstance(ports, list) else ():
        if isinstance(port, dict) and port.get("name") == container.port_name and isinstance(port.get("containerPort"), int):
            return int(port["containerPort"])
    return None


def service_port(port: JsonObject) -> JsonObject:
    """A named port of a container as that of a service."""
    found = {"name": port["name"], "port": port["containerPort"]}
    return found | {"protocol": port["protocol"]} if "protocol" in port else found
