"""The ScalePlan: its CRD, and how it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from pydantic import Field

from dlop import ApiModel, Count, CustomObject, JobType, JsonObject, ManifestField, Problem, Replicas, SpecError
from dlop.frameworks.dlrover.names import MASTER, MEMBER_ROLES, SCALE_TYPE_LABEL, WORKER, member_name
from dlop.policies import MemberRequest, Migration, RoleTarget, ScaleRequest, parse_quantities

if TYPE_CHECKING:
    from dlop.frameworks.dlrover.elasticjob import ElasticJob

SCALE_PLAN = JobType(group="elastic.iml.github.io", version="v1alpha1", kind="ScalePlan")
MANUAL, AUTOMATIC = "manual", "auto"
"""Values of the label `scale-type`: who has written a plan."""
_Resources = dict[str, int | str]
_MAX_ITEMS = 10_000
"""Number of pods that a field can list."""
_MAX_NUMBER = 999_999
"""Of IDs and ranks, which are labels."""


class ReplicaResourceModel(ApiModel):
    """Number of pods of a role, and resources of new ones."""

    replicas: Replicas | None = None
    """Number of pods that run or are about to."""
    resource: _Resources | None = None
    """Requests and limits of new pods. Defaults to those of the pod template."""


class PodMetaModel(ApiModel):
    """A pod to create, remove or migrate."""

    name: str | None = None
    """Name of the pod."""
    id: Count | None = None
    """Number of the pod, which no other pod of its role has."""
    type: str | None = None
    """Role of the pod."""
    rank_index: Count | None = None
    """Rank of the pod, which its replacement takes over."""
    service: str | None = None
    """Address of the service of the rank."""
    resource: _Resources | None = None
    """Requests and limits of the pod."""


class ScalePlanModel(ApiModel):
    """Specification of a ScalePlan."""

    owner_job: Annotated[str, Field(min_length=1)]
    """ElasticJob that is scaled."""
    replica_resource_specs: dict[str, ReplicaResourceModel] | None = None
    """Number of pods by role."""
    create_pods: list[PodMetaModel] | None = None
    """Pods to create."""
    remove_pods: list[PodMetaModel] | None = None
    """Pods to delete, by name."""
    migrate_pods: list[PodMetaModel] | None = None
    """Workers to replace by ones with other resources, by name. For manual plans only."""
    ps_hosts: list[str] | None = None
    """Addresses of all parameter servers."""


def is_automatic(plan: CustomObject) -> bool:
    """Whether the master wrote a plan."""
    return plan.metadata.labels.get(SCALE_TYPE_LABEL) == AUTOMATIC


def raw_spec(plan: CustomObject) -> Any:
    return msgspec.json.decode(plan.spec)


def read_scale_plan(job: ElasticJob, plan: CustomObject) -> ScaleRequest:
    """What a plan asks for. Raises SpecError if it cannot be executed."""
    label = plan.metadata.labels.get(SCALE_TYPE_LABEL, "")
    if label not in (MANUAL, AUTOMATIC):
        message = f"must have the label {SCALE_TYPE_LABEL} with the value {MANUAL} or {AUTOMATIC}, got {label!r:.60}"
        raise SpecError((Problem("metadata.labels", message),))
    return _Reader(job, ManifestField("spec", raw_spec(plan)), is_manual=label == MANUAL).read()


class _Reader:
    def __init__(self, job: ElasticJob, spec: ManifestField, *, is_manual: bool) -> None:
        self._job = job
        self._spec = spec
        self._is_manual = is_manual

    def read(self) -> ScaleRequest:
        self._spec.object()
        request = ScaleRequest(
            targets=dict(self._targets()),
            creates=tuple(self._creates()),
            removes=tuple(self._names("removePods")),
            migrations=tuple(self._migrations()),
            hosts=tuple(host.string() for host in self._items("psHosts")),
            is_manual=self._is_manual,
        )
        self._spec.raise_problems()
        return request

    def _targets(self) -> Iterator[tuple[str, RoleTarget]]:
        specs = self._spec.get("replicaResourceSpecs")
        specs.object()
        for role, field in specs.entries():
            field.object()
            replicas = field.get("replicas").optional_integer(maximum=_MAX_ITEMS)
            # The master is in the plan if the spec of the job mentions it.
            if role != MASTER and self._check_role(field, role) and replicas is not None:
                yield role, RoleTarget(replicas=replicas, resources=self._resources(field.get("resource")))

    def _creates(self) -> Iterator[MemberRequest]:
        for item in self._items("createPods"):
            item.object()
            role = item.get("type").string()
            if self._check_role(item.get("type"), role):
                rank = item.get("rankIndex").optional_integer(maximum=_MAX_NUMBER)
                yield MemberRequest(
                    role=role,
                    id=item.get("id").optional_integer(maximum=_MAX_NUMBER),
                    rank=rank,
                    resources=self._resources(item.get("resource")),
                    service=self._service(item.get("service"), role, rank),
                )

    def _service(self, field: ManifestField, role: str, rank: int | None) -> str:
        """The name in the address of a service; empty for the default, so that members with consecutive ranks are stored together."""
        name = field.string().partition(":")[0].partition(".")[0]
        return "" if rank is not None and name == member_name(self._job.metadata.name, role, rank) else name

    def _items(self, field: str) -> Sequence[ManifestField]:
        items = list(self._spec.get(field).items())
        if len(items) > _MAX_ITEMS:
            self._spec.get(field).error(f"must have at most {_MAX_ITEMS} items, got {len(items)}")
            return ()
        return items

    def _names(self, field: str) -> Iterator[str]:
        for item in self._items(field):
            name = item.get("name").string()
            if not name:
                item.get("name").error("is missing; it selects the pod")
            elif self._is_manual and not name.startswith(member_name(self._job.metadata.name, WORKER, 0)[:-1]):
                item.get("name").error(f"must be a worker, got {name!r:.80}; {self._only_workers}")
            yield name

    def _migrations(self) -> Iterator[Migration]:
        for item, name in zip(self._spec.get("migratePods").items(), self._names("migratePods"), strict=False):
            if not self._is_manual:
                item.error("is only possible in a manual plan; use createPods and removePods")
            yield Migration(pod=name, resources=self._resources(item.get("resource")))

    def _check_role(self, field: ManifestField, role: str) -> bool:
        if role not in MEMBER_ROLES:
            field.error(f"must be one of {', '.join(MEMBER_ROLES)}, got {role!r:.60}")
        elif self._is_manual and role != WORKER:
            field.error(f"cannot be scaled by a manual plan; {self._only_workers}")
        elif self._job.spec.role(role) is None:
            field.error(f"is not possible, because the job has no template for it; add spec.replicaSpecs.{role} to the ElasticJob")
        else:
            return True
        return False

    def _resources(self, field: ManifestField) -> Mapping[str, str]:
        """Quantities. Those that are zero are left out."""
        field.object()
        resources: dict[str, str] = {}
        for name, value in field.entries():
            quantity = parse_quantities({name: value.value}).get(name)
            if quantity is None or quantity.value < 0:
                value.error("is not a quantity; use a value like 500m or 2Gi")
            elif quantity.value:
                resources[name] = str(quantity)
        return resources

    @property
    def _only_workers(self) -> str:
        return "only the master can change other pods, because it must move their parameters first"


def manual_plan(job: ElasticJob, replicas: Mapping[str, int]) -> JsonObject:
    """The manifest of a plan that sets the number of pods by role."""
    metadata = {
        "generateName": f"{job.metadata.name}-manual-",
        "namespace": job.metadata.namespace,
        "labels": {SCALE_TYPE_LABEL: MANUAL, "elasticjob.dlrover/name": job.metadata.name},
        "ownerReferences": [{**job.owner_reference(), "controller": False}],
    }
    specs = {role: {"replicas": count} for role, count in replicas.items()}
    spec = {"ownerJob": job.metadata.name, "replicaResourceSpecs": specs}
    return {"apiVersion": SCALE_PLAN.api_version, "kind": SCALE_PLAN.kind, "metadata": metadata, "spec": spec}
