"""Child objects: objects that jobs of a kind need in addition to pods and services."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from dlop.api.child_objects import Create
from dlop.api.progress import Progress
from dlop.api.types import PermissionSet
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")


class ChildObjects(ABC, Generic[Job]):
    """Objects that are created before the pods of a job. The operator watches them like pods and services."""

    resources: ClassVar[tuple[Resource, ...]]
    """The resources of the objects other than pods and services."""
    reads: ClassVar[tuple[Resource, ...]] = ()
    """Resources that the operator must be able to read for the objects, and that jobs do not own. Only with `on_demand`."""
    is_ephemeral: ClassVar[bool] = False
    """Whether the objects are deleted when the job is suspended, has finished, or no longer needs them. Otherwise they go with the job."""
    on_demand: ClassVar[bool] = False
    """Whether the operator watches the resources only from the first job on that needs them, for objects that few jobs need.

    Objects that a job no longer needs are deleted.
    """
    rules: ClassVar[tuple[JsonObject, ...]] = ()
    """RBAC rules that the operator needs for the objects."""
    permission_set: ClassVar[PermissionSet | None] = None
    """RBAC rules that are granted only on request. Without them, jobs that need the objects are blocked with a reason."""

    @abstractmethod
    def build(self, job: Job) -> tuple[Create, ...]:
        """The objects that the job needs, in the order of creation. Use `DLJob.child_metadata` for their metadata."""

    def update(self, job: Job, progress: Progress) -> tuple[Create, ...]:
        """The objects that are kept current while the job runs, in their desired state; for example a list of the running pods."""
        return ()
