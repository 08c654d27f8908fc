"""One replica of a job: a pod and the service that leads to it.

The user's template is kept whole. What dlop adds to it goes after what the user wrote and never over it: the
environment of the framework, the port, labels, the owner. Everything here is plain data; nothing of a manifest is ever
formatted into a command or evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, SIZE_ANNOTATION
from dlop.api.gang import Gang, with_pod_group
from dlop.api.parsing import training_container
from dlop.api.progress import ReplicaProgress, ReplicaState
from dlop.api.spec import RoleSpec
from dlop.api.template_hash import stamped
from dlop.api.types import ContainerProperties, JobType
from dlop.kube.objects import ObjectMeta, Pod
from dlop.kube.types import JsonObject


class Renderer(Protocol):
    """What a replica asks its job. `dlop.job.DLJob` is one."""

    job_type: ClassVar[JobType]
    container_properties: ClassVar[ContainerProperties]
    adds_container_port: ClassVar[bool]
    informs_all_containers: ClassVar[bool]
    environment_wins: ClassVar[bool]

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the job."""
        ...

    @property
    def gang(self) -> Gang | None:
        """The group as which a scheduler places the pods; None: each pod by itself."""
        ...

    @property
    def size(self) -> str:
        """How many replicas there are, as far as each of them is told."""
        ...

    def owner_reference(self) -> JsonObject:
        """What objects carry that belong to the job."""
        ...

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """The name of a replica's pod."""
        ...

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """The name of a replica's service; None when it needs none."""
        ...

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels that tell a replica from all others: its service finds it by them."""
        ...

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Labels of the pod besides those."""
        ...

    def service_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels of the service."""
        ...

    def port(self, role: RoleSpec) -> int | None:
        """What the replicas of a role listen on."""
        ...

    def service_ports(self, role: RoleSpec, container: JsonObject) -> list[JsonObject]:
        """The ports of a replica's service, given the finished training container."""
        ...

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """What the node is to do when a container of the pod ends."""
        ...

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """What the framework tells a replica."""
        ...

    def get_pod_fields(self, replica: Replica) -> Mapping[str, str]:
        """What only the pod itself can tell."""
        ...

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """The last word on a pod."""
        ...


class Replica:
    """One pod and service pair: what it is called, what it is made of, and what has become of it."""

    def __init__(self, job: Renderer, role: RoleSpec, index: int, *, attempt: int = 0, observed: ReplicaProgress | None = None) -> None:
        self._job = job
        self._role = role
        self.index = index
        self.attempt = attempt
        self._observed = observed

    @property
    def role(self) -> str:
        """The name of its role, as the kind spells it."""
        return self._role.name

    @property
    def spec(self) -> RoleSpec:
        """Everything that the job asks of its role."""
        return self._role

    @property
    def name(self) -> str:
        """The name of its pod."""
        return self._job.replica_name(self._role, self.index)

    @property
    def service_name(self) -> str | None:
        """The name of its service; None when it has none."""
        return self._job.service_name(self._role, self.index)

    @property
    def port(self) -> int | None:
        """What it listens on, if on anything."""
        return self._job.port(self._role)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pod that tell it from all others."""
        return dict(self._job.labels(self._role, self.index))

    @property
    def state(self) -> ReplicaState:
        """Where it stands, as far as anything was observed."""
        return self._observed.state if self._observed is not None else ReplicaState.MISSING

    @property
    def observed_pod(self) -> Pod | None:
        """Its pod as the cluster shows it, if there is one."""
        return self._observed.pod if self._observed is not None else None

    def pod(self) -> JsonObject:
        """Its pod, ready to be created."""
        template = self._role.template
        given = _part(template, "metadata")
        metadata: JsonObject = {
            "name": self.name,
            "namespace": self._job.metadata.namespace,
            "labels": {**_part(given, "labels"), **self._job.pod_labels(self._role, self.index), **self._own_labels(), **self.labels},
            "ownerReferences": [self._job.owner_reference()],
        }
        if isinstance(finalizers := given.get("finalizers"), list):
            metadata["finalizers"] = list(finalizers)
        size = self._job.size
        if annotations := _part(given, "annotations") | ({SIZE_ANNOTATION: size} if size else {}):
            metadata["annotations"] = annotations
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._pod_spec(_part(template, "spec"))}
        pod, gang = self._job.customize_pod(self, pod), self._job.gang
        whole = pod if gang is None else with_pod_group(pod, gang, role=self.role)
        return stamped(whole, generation=self._job.metadata.generation)

    def service(self) -> JsonObject:
        """Its service, ready to be created. It has no address of its own: its name leads to the pod, ready or not."""
        container = self._training_container(_part(self._role.template, "spec")["containers"])
        spec: JsonObject = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": self.labels,
        }
        if ports := self._job.service_ports(self._role, container):
            spec["ports"] = ports
        metadata = {
            "name": self.service_name,
            "namespace": self._job.metadata.namespace,
            "labels": {JOB_UID_LABEL: self._job.metadata.uid, **self._job.service_labels(self._role, self.index)},
            "ownerReferences": [self._job.owner_reference()],
        }
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}

    def _own_labels(self) -> dict[str, str]:
        return {ATTEMPT_LABEL: str(self.attempt), JOB_UID_LABEL: self._job.metadata.uid}

    def _pod_spec(self, given: JsonObject) -> JsonObject:
        containers = list(given["containers"])
        chosen = training_container(containers, self._job.container_properties)
        environment = self._environment()
        trained = self._informed(self._training_container(containers), environment)
        others = environment if self._job.informs_all_containers else []
        return {
            **given,
            "containers": [trained if each is chosen else self._informed(each, others) for each in containers],
            "restartPolicy": str(self._job.pod_restart_policy(self._role, self.index)),
        }

    def _training_container(self, containers: list[JsonObject]) -> JsonObject:
        """A copy of the container that takes part in the job, with its port."""
        properties = self._job.container_properties
        chosen = training_container(containers, properties)
        ports = list(chosen.get("ports") or [])
        if self._job.adds_container_port and self.port is not None and not any(port.get("name") == properties.port_name for port in ports):
            ports.append({"name": properties.port_name, "containerPort": self.port})
        return {**chosen, "ports": ports} if ports else dict(chosen)

    def _informed(self, container: JsonObject, environment: list[JsonObject]) -> JsonObject:
        """The container with these variables after the user's own. Where a name is there twice, the last one counts.

        What the user says in the same words is not said again: the API server warns of names that are there twice.
        """
        own = container.get("env") or []
        said, wins = {variable.get("name"): variable for variable in own}, self._job.environment_wins
        added = [each for each in environment if each["name"] not in said or (wins and said[each["name"]] != each)]
        return {**container, "env": [*own, *added]} if added or own else container

    def _environment(self) -> list[JsonObject]:
        """What the framework adds."""
        fields = self._job.get_pod_fields(self)
        found: list[JsonObject] = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
        for name, value in self._job.get_environment_variables(self).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"{type(self._job).__name__}.get_environment_variables must give texts: {name!r} is {value!r:.60}")
            found.append({"name": name, "value": value})
        return found


def _part(whole: JsonObject, name: str) -> dict[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, dict) else {}
