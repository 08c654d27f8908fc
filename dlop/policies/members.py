"""Members: pods of a job that its own master manages, in addition to the replicas of the spec.

The master creates them itself, and the operator adopts them; or it writes scale plans, and the operator executes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from dlop.api.scale_plan import Member, ScaleRequest
from dlop.api.types import JobType
from dlop.kube.objects import CustomObject
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")


class Members(ABC, Generic[Job]):
    """The members of the jobs of a kind, and their scale plans."""

    roles: ClassVar[tuple[str, ...]]
    """The roles that have members. In the spec, these roles have no replicas."""
    plan_type: ClassVar[JobType]
    """The custom resource of the scale plans."""
    plan_model: ClassVar[type[BaseModel]]
    """The model of the spec of a scale plan."""
    name_label: ClassVar[str]
    """The label with the name of the job, on pods that the master creates."""

    @abstractmethod
    def plan_owner(self, plan: CustomObject) -> str:
        """The name of the job of a scale plan; empty if it names none. Must not raise."""

    @abstractmethod
    def plan_order(self, plan: CustomObject) -> int:
        """The number of a scale plan, by which plans are executed. Those with the same number are executed in the order of creation."""

    @abstractmethod
    def is_automatic(self, plan: CustomObject) -> bool:
        """Whether the master wrote a scale plan."""

    @abstractmethod
    def read_plan(self, job: Job, plan: CustomObject) -> ScaleRequest:
        """What a scale plan asks for. Raises SpecError if it cannot be executed."""

    @abstractmethod
    def manual_plan(self, job: Job, replicas: Mapping[str, int]) -> JsonObject:
        """The manifest of a scale plan with which a user sets the number of members by role. Raises SpecError if it is not possible."""

    @abstractmethod
    def is_held(self, job: Job) -> bool:
        """Whether scale plans wait."""

    @abstractmethod
    def needs_plans(self, job: Job) -> bool:
        """Whether the master writes scale plans, so that the operator must be able to read them."""

    @abstractmethod
    def replaces_removed(self, job: Job) -> bool:
        """Whether the master creates members again that a user removes."""

    @abstractmethod
    def identify(self, labels: Mapping[str, str]) -> Member | None:
        """The member that a pod with these labels is, or that a service with these labels belongs to; None for other objects."""

    @abstractmethod
    def pod_name(self, job: Job, role: str, member_id: int) -> str:
        """The name of the pod of a member."""

    @abstractmethod
    def service_name(self, job: Job, member: Member) -> str:
        """The name of the service of a rank."""

    @abstractmethod
    def labels(self, job: Job, member: Member) -> Mapping[str, str]:
        """The labels of the pod of a member."""

    @abstractmethod
    def selector(self, job: Job, member: Member) -> Mapping[str, str]:
        """The labels by which the service of a rank selects its pod."""

    def resource_limits(self, job: Job) -> Mapping[str, str]:
        """Quantities that the requests of all members must not exceed."""
        return {}
