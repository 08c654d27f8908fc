"""Values with which a framework declares itself: its custom resource, its roles, its container and its permissions.

A mistake raises DeclarationError when the value or the class is created, with a message that says what to write.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from dlop.api.spec import RestartPolicy
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.api.flags import FrameworkFlags

_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_CONTAINER_NAME = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?)?")
_RESOURCE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
Flags = TypeVar("Flags", bound="FrameworkFlags")
Choice = TypeVar("Choice", bound=StrEnum)


class DeclarationError(TypeError):
    """A framework class is declared incompletely or incorrectly. The message says what to write."""


@dataclass(frozen=True, slots=True)
class JobType:
    """The custom resource of a framework. Plural and singular default to forms of the kind."""

    group: str
    """The API group, a domain."""
    version: str
    """The API version, such as `v1`."""
    kind: str
    """The kind in CamelCase."""
    plural: str = ""
    """The plural in API paths; defaults to the lower-case kind plus `s`."""
    singular: str = ""
    """Defaults to the lower-case kind."""
    short_names: tuple[str, ...] = ()
    """Short names for `kubectl get`."""
    categories: tuple[str, ...] = ()
    """Groups of resources for `kubectl get`, such as `all`."""
    served_versions: tuple[str, ...] = field(default=(), kw_only=True)
    """Further versions under which the API server serves the same objects. Their schema is that of `version`."""

    def __post_init__(self) -> None:
        require(_matches(_DOMAIN, self.group), f"JobType group {self.group!r}", "a domain, like 'example.org'")
        require(_matches(_VERSION, self.version), f"JobType version {self.version!r}", "like 'v1' or 'v1alpha1'")
        are_versions = isinstance(self.served_versions, tuple) and all(_matches(_VERSION, each) for each in self.served_versions)
        is_new = are_versions and len({self.version, *self.served_versions}) == 1 + len(self.served_versions)
        require(is_new, f"JobType served_versions {self.served_versions!r}", "a tuple of other versions, like ('v1alpha1',)")
        require(_matches(_KIND, self.kind), f"JobType kind {self.kind!r}", "in CamelCase, like 'RingJob'")
        object.__setattr__(self, "plural", self.plural or f"{self.kind.lower()}s")
        object.__setattr__(self, "singular", self.singular or self.kind.lower())
        require(_matches(_RESOURCE_NAME, self.plural), f"JobType plural {self.plural!r}", "in lower case, like 'ringjobs'")
        require(_matches(_RESOURCE_NAME, self.singular), f"JobType singular {self.singular!r}", "in lower case, like 'ringjob'")
        for name, names, example in (("short_names", self.short_names, "('ring',)"), ("categories", self.categories, "('all',)")):
            is_valid = isinstance(names, tuple) and all(_matches(_RESOURCE_NAME, each) for each in names)
            require(is_valid, f"JobType {name} {names!r}", f"a tuple of names in lower case, like {example}")

    @property
    def resource(self) -> Resource:
        """The API resource of the objects."""
        return Resource(self.group, self.version, self.plural, self.kind)

    @property
    def api_version(self) -> str:
        """`group/version`, as in manifests."""
        return f"{self.group}/{self.version}"

    @property
    def api_versions(self) -> tuple[str, ...]:
        """`group/version` of all served versions, the main one first."""
        return tuple(f"{self.group}/{version}" for version in (self.version, *self.served_versions))

    def resource_in(self, api_version: str) -> Resource:
        """The API resource in one of the served versions."""
        return Resource(self.group, api_version.rpartition("/")[2], self.plural, self.kind)

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


class StartCondition(StrEnum):
    """The state that all replicas of a role must reach before another role starts. A replica that has succeeded satisfies all of them."""

    RUNNING = "Running"
    READY = "Ready"
    """The pod runs, and its readiness probes succeed."""
    SUCCEEDED = "Succeeded"


@dataclass(frozen=True, slots=True)
class StartAfter:
    """A role that must reach a condition before another role starts. A role that the job does not have is ignored."""

    role: str
    condition: StartCondition = StartCondition.RUNNING

    def __post_init__(self) -> None:
        require(_matches(_ROLE, self.role), f"StartAfter role {self.role!r}", "the name of a role, like 'Worker'")
        object.__setattr__(self, "condition", to_choice(StartCondition, self.condition, "StartAfter condition"))


@dataclass(frozen=True, slots=True)
class ReplicaType:
    """One role of a framework, such as Worker."""

    name: str
    """The name of the role in manifests."""
    default_replicas: int = field(default=1, kw_only=True)
    """The number of replicas if the manifest does not set one."""
    minimum: int = field(default=0, kw_only=True)
    """The minimum number of replicas."""
    maximum: int | None = field(default=None, kw_only=True)
    """The maximum number of replicas; None means 10,000."""
    restart_policy: RestartPolicy = field(default=RestartPolicy.ON_FAILURE, kw_only=True)
    """The restart policy if the manifest does not set one."""
    required_for_success: bool = field(default=True, kw_only=True)
    """Whether this role must succeed for the job to succeed."""
    required: bool = field(default=False, kw_only=True)
    """Whether a job without this role is invalid."""
    shares_port: bool = field(default=False, kw_only=True)
    """Whether all replicas of the role have the same port in the host network, because the environment has one port for all of them."""
    start_after: str | StartAfter | tuple[str | StartAfter, ...] = field(default=(), kw_only=True)
    """The roles that must run before the pods of this role are created. Use `StartAfter` for another condition than running."""
    in_gang: bool = field(default=True, kw_only=True)
    """Whether gang scheduling applies to the pods. If not, the default scheduler places them."""

    @property
    def upstream(self) -> tuple[StartAfter, ...]:
        """`start_after` as a tuple of values."""
        return tuple(StartAfter(entry) if isinstance(entry, str) else entry for entry in self._start_entries)

    @property
    def _start_entries(self) -> tuple[str | StartAfter, ...]:
        return self.start_after if isinstance(self.start_after, tuple) else (self.start_after,)

    def __post_init__(self) -> None:
        require(_matches(_ROLE, self.name), f"ReplicaType name {self.name!r}", "made of letters, digits and dashes, like 'Worker'")
        is_valid_order = all(isinstance(entry, str | StartAfter) for entry in self._start_entries)
        require(is_valid_order, f"ReplicaType start_after={self.start_after!r}", "a role, a StartAfter or a tuple of them")
        object.__setattr__(self, "restart_policy", to_choice(RestartPolicy, self.restart_policy, "ReplicaType restart_policy"))
        maximum = self.default_replicas if self.maximum is None else self.maximum
        are_numbers = all(isinstance(number, int) for number in (self.minimum, self.default_replicas, maximum))
        require(
            are_numbers and 0 <= self.minimum <= self.default_replicas <= maximum,
            f"ReplicaType {self.name!r}: minimum={self.minimum!r}, default_replicas={self.default_replicas!r}, maximum={self.maximum!r}",
            "0 <= minimum <= default_replicas <= maximum",
        )


@dataclass(frozen=True, slots=True)
class ContainerProperties:
    """The training container: it gets the environment and the port, and its exit code is the result of the replica."""

    name: str
    """The name of the container; empty selects the first one."""
    port: int | None = None
    """The default port; None means that the container does not listen."""
    port_name: str = "dlop-port"
    """The name of the port. A port of this name in the manifest overrides the default port."""
    required: bool = field(default=False, kw_only=True)
    """Whether a template must have a container of this name. Otherwise a single container of any name is used."""
    adds_port: bool = field(default=True, kw_only=True)
    """Whether the port is added to the ports of the container. Otherwise only the service of a replica has it, and no other port."""
    sets_env_in_all_containers: bool = field(default=False, kw_only=True)
    """Whether all containers of a pod get the environment of the framework, not only the training container."""
    overrides_user_env: bool = field(default=False, kw_only=True)
    """Whether the environment of the framework overrides variables that the user has set."""

    def __post_init__(self) -> None:
        is_valid_name = _matches(_CONTAINER_NAME, self.name)
        require(is_valid_name, f"ContainerProperties name {self.name!r}", "a DNS label, like 'main', or empty for the first container")
        is_valid_port = self.port is None or (isinstance(self.port, int) and 0 < self.port < 65536)
        require(is_valid_port, f"ContainerProperties port {self.port!r}", "a number from 1 to 65535")
        is_valid_port_name = _matches(_PORT_NAME, self.port_name) and len(self.port_name) <= 15
        require(is_valid_port_name, f"ContainerProperties port_name {self.port_name!r}", "at most 15 lower-case letters, digits and dashes")


@dataclass(frozen=True, slots=True)
class FieldRef:
    """The value of an environment variable that Kubernetes sets from a field of the pod: `FieldRef("status.podIP")`.

    Later variables of the same container can contain it as `$(NAME)`.
    """

    path: str


@dataclass(frozen=True, slots=True)
class ConfigMapKey:
    """The value of an environment variable that Kubernetes reads from a config map. A container does not start before the key exists."""

    config_map: str
    key: str


@dataclass(frozen=True, slots=True)
class PermissionSet:
    """Optional RBAC rules, granted with `dlop deploy --with NAME`."""

    name: str
    rules: tuple[JsonObject, ...]
    cluster_rules: tuple[JsonObject, ...] = ()
    """Rules for cluster-scoped resources. A namespaced operator, which has only Roles, runs without them."""

    def __post_init__(self) -> None:
        require(_matches(_RESOURCE_NAME, self.name), f"PermissionSet name {self.name!r}", "in lower case, like 'mpi'")
        for rules in (self.rules, self.cluster_rules):
            require(is_rules(rules), f"PermissionSet {self.name!r}: the rules", f"a tuple of RBAC rules, like {RULES_EXAMPLE}")


class ForceDeletion(StrEnum):
    """When a terminating pod is force-deleted after `node_lost_seconds`. Its program may still run, and write checkpoints."""

    NEVER = "never"
    NODE_DOWN = "node-down"
    """If its node no longer exists, has the out-of-service taint or is not ready. Never where nodes cannot be read."""
    TIMEOUT = "timeout"
    """Whatever the state of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Operator settings that affect how jobs are rendered and reconciled."""

    cluster_domain: str = ""
    """For example `cluster.local`. If it is empty, host names are resolved with the search path of the pods."""
    node_lost_seconds: int | None = 60
    """Time after the grace period until the deletion of a pod is overdue; None disables force deletion."""
    force_deletion: ForceDeletion = ForceDeletion.NEVER
    gang_scheduler_name: str = ""
    """The gang scheduler; empty disables gang scheduling."""
    autoscaler: bool = False
    """Whether the autoscaler runs."""
    git_sync_image: str = ""
    """The image that clones the git repositories of jobs that do not name one; empty for none."""
    git_sync_credentials: bool = True
    """Whether the container that clones gets the Secret of the job. In a local cluster, git uses the configuration of the machine."""
    framework_flags: tuple[FrameworkFlags, ...] = ()
    """Values of the flags that frameworks declare, one object per `FrameworkFlags` class."""

    def flags(self, declared: type[Flags]) -> Flags:
        """The flags of this class, with defaults if the operator was started without them."""
        return next((flags for flags in self.framework_flags if isinstance(flags, declared)), None) or _default_flags(declared)


@functools.cache
def _default_flags(declared: type[Flags]) -> Flags:
    return declared()


RULES_EXAMPLE = '({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},)'


def is_rules(value: Any) -> bool:
    """Whether a value is a tuple of RBAC rules."""
    return isinstance(value, tuple) and all(isinstance(rule, dict) for rule in value)


def require(condition: Any, subject: str, expected: str) -> None:
    """Raise DeclarationError with the message "SUBJECT must be EXPECTED." unless a condition is true."""
    if not condition:
        raise DeclarationError(f"{subject} must be {expected}.")


def to_choice(choices: type[Choice], value: Any, subject: str) -> Choice:
    """A member of an enum, which can also be declared by its value."""
    require(value in list(choices), f"{subject} {value!r}", f"one of {', '.join(choices)}")
    return choices(value)


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
