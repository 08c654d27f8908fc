"""One replica of a job: its pod and its service.

The operator adds the environment of the framework, the port, labels and the owner reference to the user's template. The
operator sets the restart policy and the labels that it needs; other values of the user are kept, except for environment
variables if the container properties say so. Manifests are plain data here: no value is ever interpolated into a command
or evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, REPLACEMENT_ANNOTATION, REQUESTS_ANNOTATION, SIZE_ANNOTATION
from dlop.api.gang import Gang, with_default_scheduler, with_pod_group
from dlop.api.kueue import with_placement
from dlop.api.parsing import service_port, training_container
from dlop.api.pod_resources import pod_requests
from dlop.api.progress import ReplicaProgress, ReplicaState
from dlop.api.scale_plan import Member
from dlop.api.spec import RoleSpec
from dlop.api.spot_replicas import with_spot_options
from dlop.api.template_hash import with_annotation, with_template_hash
from dlop.api.types import ConfigMapKey, FieldRef
from dlop.kube.objects import Pod
from dlop.kube.types import JsonObject
from dlop.policies.git_sync import with_code

if TYPE_CHECKING:
    from dlop.job import DLJob
    from dlop.policies.members import Members


class Replica:
    """The pod and service of one index of a role: names, labels, rendered objects and observed state."""

    def __init__(
        self,
        job: DLJob,
        role: RoleSpec,
        index: int,
        *,
        attempt: int = 0,
        replacement: int = 0,
        observed: ReplicaProgress | None = None,
    ) -> None:
        """`replacement` is the number of pods of this replica that were lost in this attempt before."""
        self._job = job
        self._role = role
        self.index = index
        self.attempt = attempt
        self._replacement = replacement
        self._observed = observed

    @property
    def role(self) -> str:
        """The name of the role, in the spelling of the kind."""
        return self._role.name

    @property
    def spec(self) -> RoleSpec:
        """The spec of the role."""
        return self._role

    @property
    def name(self) -> str:
        """The name of the pod."""
        return self._job.naming.pod_name(self._job, self._role, self.index)

    @property
    def service_name(self) -> str | None:
        """The name of the service; None if the replica has no service."""
        return self._job.naming.service_name(self._job, self._role, self.index)

    @property
    def port(self) -> int | None:
        """The port of the training container; None if it does not listen."""
        if self._job.uses_host_network:
            return self._job.port(self.role, self.index)
        return self._job.container_properties.port if self._role.port is None else self._role.port

    @property
    def labels(self) -> dict[str, str]:
        """The labels that select the pod."""
        return dict(self._job.naming.labels(self._job, self._role, self.index))

    @property
    def state(self) -> ReplicaState:
        """The observed state; Missing if nothing was observed."""
        return self._observed.state if self._observed is not None else ReplicaState.MISSING

    @property
    def observed_pod(self) -> Pod | None:
        """The existing pod; None if it does not exist or was not observed."""
        return self._observed.pod if self._observed is not None else None

    def pod(self) -> JsonObject:
        """The rendered pod."""
        template = self._template
        template_metadata = _object(template, "metadata")
        labels = {**_object(template_metadata, "labels"), **self._job.naming.pod_labels(self._job, self._role, self.index)}
        metadata: JsonObject = {
            "name": self.name,
            "namespace": self._job.metadata.namespace,
            "labels": {**labels, **self._operator_labels(), **self.labels},
            "ownerReferences": [self._job.owner_reference()],
        }
        if isinstance(finalizers := template_metadata.get("finalizers"), list):
            metadata["finalizers"] = list(finalizers)
        size = self._job.size
        if annotations := _object(template_metadata, "annotations") | ({SIZE_ANNOTATION: size} if size else {}):
            metadata["annotations"] = annotations
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._pod_spec(_object(template, "spec"))}
        pod, gang = self._job.customize_pod(self, pod), self._job.gang
        if gang is not None:
            pod = self._with_gang(pod, gang)
        pod = with_template_hash(pod, generation=self._job.metadata.generation)
        return with_annotation(pod, REPLACEMENT_ANNOTATION, str(self._replacement)) if self._replacement else pod

    def _with_gang(self, pod: JsonObject, gang: Gang) -> JsonObject:
        if not self._job.is_in_gang(self._role):
            return with_default_scheduler(pod)
        return with_pod_group(pod, gang, role=self.role, min_member=self._job.initial_min_member)

    def service(self) -> JsonObject | None:
        """The rendered service; None if the replica has none. It is headless and publishes the address of the pod before it is ready."""
        name = self.service_name
        if name is None:
            return None
        spec: JsonObject = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": self._selector}
        if ports := self._service_ports():
            spec["ports"] = ports
        metadata = {**self._job.child_metadata(name), "labels": {JOB_UID_LABEL: self._job.metadata.uid, **self._service_labels}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        return self._job.customize_service(self, service)

    @property
    def _template(self) -> JsonObject:
        """The pod template, with the options of spot replicas if this is one, and of the queue that admitted it."""
        role, placement = self._role, self._job.placement(self._role)
        is_spot = role.spot is not None and self._job.is_spot(role, self.index)
        template = with_spot_options(role.template, role.spot) if role.spot is not None and is_spot else role.template
        return template if placement is None else with_placement(template, placement)

    @property
    def _selector(self) -> dict[str, str]:
        return self.labels

    @property
    def _service_labels(self) -> Mapping[str, str]:
        return self._job.naming.service_labels(self._job, self._role, self.index)

    def _service_ports(self) -> list[JsonObject]:
        """All named ports of the training container, or only the port of the framework if the container does not have it."""
        properties = self._job.container_properties
        if not properties.adds_port:
            return [] if self.port is None else [{"name": properties.port_name, "port": self.port}]
        container = self._training_container(_object(self._role.template, "spec")["containers"])
        named = {port["name"]: port for port in container.get("ports") or [] if port.get("name")}
        return [service_port(port) for port in named.values()]

    def _operator_labels(self) -> dict[str, str]:
        return {ATTEMPT_LABEL: str(self.attempt), JOB_UID_LABEL: self._job.metadata.uid}

    def _pod_spec(self, template_spec: JsonObject) -> JsonObject:
        containers = list(template_spec["containers"])
        original = training_container(containers, self._job.container_properties)
        environment = self._environment()
        rendered = self._with_environment(self._training_container(containers), environment)
        sidecar_environment = environment if self._job.container_properties.sets_env_in_all_containers else []
        pod_spec = {
            **(_in_host_network(template_spec) if self._job.uses_host_network else template_spec),
            "containers": [
                rendered if container is original else self._with_environment(container, sidecar_environment) for container in containers
            ],
            "restartPolicy": str(self._job.lifecycle.pod_restart_policy(self._job, self._role, self.index)),
        }
        sources = self._job.spec.run_policy.code_sync
        return with_code(pod_spec, sources, resources=original.get("resources"), options=self._job.options) if sources else pod_spec

    def _training_container(self, containers: list[JsonObject]) -> JsonObject:
        """A copy of the training container with the port of the framework."""
        properties = self._job.container_properties
        container = training_container(containers, properties)
        ports = list(container.get("ports") or [])
        if self._job.uses_host_network and self.port is not None:
            # The scheduler places no two pods with the same host port on one node.
            ports = [port for port in ports if port.get("name") != properties.port_name]
            ports.append({"name": properties.port_name, "containerPort": self.port, "hostPort": self.port})
        elif properties.adds_port and self.port is not None and not any(port.get("name") == properties.port_name for port in ports):
            ports.append({"name": properties.port_name, "containerPort": self.port})
        return {**container, "ports": ports} if ports else dict(container)

    def _with_environment(self, container: JsonObject, environment: list[JsonObject]) -> JsonObject:
        """A copy of the container with these variables after the user's. If a name occurs twice, the last one takes effect.

        Variables that the user has set to the same value are not repeated, because the API server warns about duplicates.
        """
        user_env = container.get("env") or []
        by_name = {variable.get("name"): variable for variable in user_env}
        overrides = self._job.container_properties.overrides_user_env
        added = [
            variable for variable in environment if variable["name"] not in by_name or (overrides and by_name[variable["name"]] != variable)
        ]
        return {**container, "env": [*user_env, *added]} if added or user_env else container

    def _environment(self) -> list[JsonObject]:
        """The environment of the framework."""
        variables: Mapping[Any, Any] = self._job.get_environment_variables(self)
        environment: list[JsonObject] = []
        for name, value in variables.items():
            if isinstance(value, FieldRef):
                environment.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": value.path}}})
            elif isinstance(value, ConfigMapKey):
                environment.append({"name": name, "valueFrom": {"configMapKeyRef": {"name": value.config_map, "key": value.key}}})
            elif isinstance(name, str) and isinstance(value, str):
                environment.append({"name": name, "value": value})
            else:
                kind = type(self._job).__name__
                raise TypeError(
                    f"{kind}.get_environment_variables must return strings, FieldRefs or ConfigMapKeys, got {value!r:.60} for {name!r}"
                )
        return environment


class MemberReplica(Replica):
    """A member of a job, which a scale plan asks for. Its index is its ID."""

    def __init__(self, job: DLJob, members: Members[Any], role: RoleSpec, member: Member) -> None:
        super().__init__(job, role, member.id)
        self._members = members
        self.member = member

    @property
    def name(self) -> str:
        return self._members.pod_name(self._job, self.member.role, self.member.id)

    @property
    def service_name(self) -> str | None:
        return self._members.service_name(self._job, self.member)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self._members.labels(self._job, self.member))

    @property
    def _selector(self) -> dict[str, str]:
        return dict(self._members.selector(self._job, self.member))

    @property
    def _service_labels(self) -> Mapping[str, str]:
        return self._selector

    def pod(self) -> JsonObject:
        """The rendered pod, with the requests that the operator must know to enforce limits."""
        pod = super().pod()
        requests = pod_requests(pod["spec"])
        return with_annotation(pod, REQUESTS_ANNOTATION, ",".join(f"{name}={amount}" for name, amount in requests.items()))


def _in_host_network(template_spec: JsonObject) -> JsonObject:
    """A copy of a pod spec in the network of the node, in which names of services are still resolved."""
    policy = template_spec.get("dnsPolicy")
    return {
        **template_spec,
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet" if policy in (None, "", "ClusterFirst") else policy,
    }


def _object(parent: JsonObject, name: str) -> dict[str, Any]:
    """A nested object; empty if it is missing or not an object."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}
