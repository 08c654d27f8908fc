"""Writes for one job, with expectations and resource versions.

An expectation is set before a create or delete is sent. The resource version of every response goes to the
read-your-writes gate, so that no pass starts before the caches show the write. Responses map to a few results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec
import structlog

from dlop.api.child_objects import Create
from dlop.api.constants import JOB_UID_LABEL
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey
from dlop.controller.nodes import node_problem
from dlop.kube.client import FIELD_MANAGER, Client
from dlop.kube.errors import (
    AlreadyExistsError,
    AmbiguousWriteError,
    BadRequestError,
    ConfigurationError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubeError,
    NotFoundError,
    RequestTooLargeError,
)
from dlop.kube.expectations import Child, Expectations
from dlop.kube.objects import Node, ObjectMeta, PartialObject, object_decoder
from dlop.kube.resources import NODES, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Patch, ReplicaCreate, Report

log = structlog.get_logger(__name__)


class _VersionMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _WriteResponse(msgspec.Struct, frozen=True, gc=False):
    metadata: _VersionMeta = _VersionMeta()


_read_partial = object_decoder(PartialObject)
_read_node = object_decoder(Node)
_read_version = msgspec.json.Decoder(_WriteResponse).decode
_QUERY = (("fieldManager", FIELD_MANAGER),)
_MERGE_PATCH = "application/merge-patch+json"
_REJECTIONS = (BadRequestError, ForbiddenError, InvalidError, RequestTooLargeError)


class WriteResult(Enum):
    DONE = "done"
    UNCHANGED = "unchanged"
    """The API server left the object as it was."""
    REJECTED = "rejected"
    """The API server does not accept the object."""
    CONFLICT = "conflict"
    """An object of another owner holds the name."""
    SHARED = "shared"
    """An object of another owner holds the name, and the job can use it."""
    STALE = "stale"
    """The cache is stale: the object to create exists, or the object to delete or patch is gone or was replaced."""
    UNKNOWN = "unknown"
    """The API server failed, or its response was lost."""


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    result: WriteResult
    error: KubeError | None = None


DONE = WriteOutcome(WriteResult.DONE)


@dataclass(frozen=True, slots=True)
class Writer:
    client: Client
    expectations: Expectations
    informers: InformerSet
    key: JobKey
    uid: str
    removed: set[str] = field(default_factory=set)
    """UIDs of objects that the API server has removed according to its responses. The caches may still show them."""

    def encode(self, create: Create | ReplicaCreate) -> bytes:
        """Render an object as JSON, with the label that the informer selects by."""
        body = create.body
        if create.resource not in (PODS, SERVICES) and self.informers.cache(create.resource) is not None:
            metadata = body["metadata"]
            body = {**body, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), JOB_UID_LABEL: self.uid}}}
        return msgspec.json.encode(body)

    async def create(self, create: Create | ReplicaCreate, body: bytes) -> WriteOutcome:
        """Create an object with this body, unless the cache shows that its name is in use."""
        child = Child(create.resource, self.key.namespace, create.name)
        existing = self.informers.child(create.resource, namespace=self.key.namespace, name=create.name)
        if existing is not None and existing.metadata.uid not in self.removed:
            return WriteOutcome(WriteResult.SHARED if self._can_share(create, existing.metadata) else WriteResult.CONFLICT)
        self._expect(child)
        try:
            path = create.resource.path(namespace=self.key.namespace)
            response = await self.client.call("POST", path, query=_QUERY, body=body)
        except AmbiguousWriteError as error:
            self.expectations.mark_uncertain(self.uid, child)
            return WriteOutcome(WriteResult.UNKNOWN, error)
        except KubeError as error:
            self.expectations.observe(self.uid, child)
            return await self._handle_create_error(create, error)
        self._record_version(create.resource, response.body)
        return DONE

    async def delete(self, delete: Delete) -> WriteOutcome:
        """Delete an object if it is still the same one. Skips objects that are terminating, unless their grace period changes."""
        if delete.down_node:
            try:
                is_down = await self._is_down(delete.down_node)
            except KubeError as error:
                return WriteOutcome(WriteResult.UNKNOWN, error)
            if not is_down:
                log.info("node is not down, pod is not force-deleted", child=delete.name, node=delete.down_node)
                return WriteOutcome(WriteResult.STALE)
        if self._is_already_deleted(delete):
            return WriteOutcome(WriteResult.STALE)
        child = Child(delete.resource, self.key.namespace, delete.name, delete.uid)
        self._expect(child)
        try:
            response = await self.client.delete(
                delete.resource,
                delete.name,
                namespace=self.key.namespace,
                uid=delete.uid,
                resource_version=delete.resource_version,
                grace_seconds=delete.grace_seconds,
            )
        except (NotFoundError, ConflictError) as error:
            self.expectations.observe(self.uid, child)
            return WriteOutcome(WriteResult.STALE, error)
        except AmbiguousWriteError as error:
            self.expectations.mark_uncertain(self.uid, child)
            return WriteOutcome(WriteResult.UNKNOWN, error)
        except KubeError as error:
            self.expectations.observe(self.uid, child)
            return WriteOutcome(WriteResult.UNKNOWN, error)
        if _is_removed(response):
            self.removed.add(delete.uid)
        return DONE

    async def patch(self, patch: Patch) -> WriteOutcome:
        """Merge-patch an object if it is still the same one.

        UNCHANGED means that the CRD pruned the fields or a webhook reverted them. Another pass would only patch again.
        """
        fields = {name: value for name, value in patch.body.items() if name not in ("apiVersion", "kind")}
        metadata = {"uid": patch.uid, "annotations": patch.body["metadata"].get("annotations") or {}}
        existing = self.informers.child(patch.resource, namespace=self.key.namespace, name=patch.name)
        try:
            version = await self._merge_patch(patch.resource, patch.name, {**fields, "metadata": metadata})
        except (NotFoundError, ConflictError) as error:
            return WriteOutcome(WriteResult.STALE, error)
        except KubeError as error:
            return WriteOutcome(WriteResult.REJECTED if _is_rejection(error) else WriteResult.UNKNOWN, error)
        return WriteOutcome(WriteResult.UNCHANGED) if existing is not None and existing.metadata.resource_version == version else DONE

    async def report(self, report: Report) -> WriteOutcome:
        """Merge-patch the status of a scale plan or a Workload if it is still the same one."""
        version = {} if report.resource_version is None else {"resourceVersion": report.resource_version}
        body = {"metadata": {"uid": report.uid, **version}, "status": report.status}
        try:
            await self._merge_patch(report.resource, report.name, body, subresource="status")
        except (NotFoundError, ConflictError) as error:
            return WriteOutcome(WriteResult.STALE, error)
        except KubeError as error:
            return WriteOutcome(WriteResult.UNKNOWN, error)
        return DONE

    async def _merge_patch(self, resource: Resource, name: str, body: JsonObject, *, subresource: str | None = None) -> str:
        """Returns the new resource version; empty if the response has none."""
        path = resource.path(namespace=self.key.namespace, name=name, subresource=subresource)
        response = await self.client.call("PATCH", path, query=_QUERY, body=body, content_type=_MERGE_PATCH)
        return self._record_version(resource, response.body)

    async def patch_status(self, patch: Mapping[str, Any], *, resource_version: str, cancel_if: Callable[[], bool] | None) -> bytes:
        """Patch the job's status if the job still has this resource version. Returns the job as JSON.

        With `cancel_if` the request has low priority: it queues behind other writes, and is cancelled if `cancel_if()` is
        true when its turn comes.

        Raises:
            RequestCancelledError: `cancel_if` cancelled the request.
            KubeError: the status was not written, or the outcome is unknown.
        """
        client = self.client if cancel_if is None else self.client.low_priority(cancel_if=cancel_if)
        body = {"metadata": {"uid": self.uid, "resourceVersion": resource_version}, "status": patch}
        path = self.key.resource.path(namespace=self.key.namespace, name=self.key.name, subresource="status")
        response = await client.call("PATCH", path, query=_QUERY, body=body, content_type=_MERGE_PATCH)
        self._record_version(self.key.resource, response.body)
        has_record = self.informers.record_gate.record_write(self.uid, response.body)
        if "dlop" in patch and not has_record:
            # Without its record the job would start over in every pass.
            raise ConfigurationError(
                f"the CRD of {self.key.resource.qualified_name} drops status.dlop and may belong to another operator; "
                "install the CRD of dlop with `dlop install --take-over`"
            )
        return response.body

    async def _handle_create_error(self, create: Create | ReplicaCreate, error: KubeError) -> WriteOutcome:
        if isinstance(error, AlreadyExistsError):
            return await self._handle_already_exists(create, error)
        return WriteOutcome(WriteResult.REJECTED if _is_rejection(error) or _is_not_installed(error) else WriteResult.UNKNOWN, error)

    async def _handle_already_exists(self, create: Create | ReplicaCreate, conflict: AlreadyExistsError) -> WriteOutcome:
        """Read the existing object, which the cache does not show. It may be the job's own."""
        path = create.resource.path(namespace=self.key.namespace, name=create.name)
        try:
            response = await self.client.call("GET", path)
        except NotFoundError as error:
            return WriteOutcome(WriteResult.STALE, error)
        except KubeError as error:
            return WriteOutcome(WriteResult.UNKNOWN, error)
        existing = _read_partial(response.body).metadata
        if self._can_share(create, existing):
            return WriteOutcome(WriteResult.SHARED)
        is_own = existing.controller is not None and existing.controller.uid == self.uid
        if not self.informers.watches_all(create.resource):  # the cache will never show an object without the job label
            return await self._add_job_label(create) if is_own else WriteOutcome(WriteResult.REJECTED, conflict)
        self._record_version(create.resource, response.body)
        return WriteOutcome(WriteResult.STALE if is_own else WriteResult.CONFLICT)

    def _can_share(self, create: Create | ReplicaCreate, existing: ObjectMeta) -> bool:
        """Whether the job can use an existing object. One that an earlier job of the same name owns is about to be deleted."""
        owner = existing.controller
        remains = existing.deletion_timestamp is None and not (owner is not None and self.key.is_referenced_by(owner))
        return create.allow_existing and remains

    async def _add_job_label(self, create: Create | ReplicaCreate) -> WriteOutcome:
        """Label an object of the job that another operator created without the label."""
        try:
            await self._merge_patch(create.resource, create.name, {"metadata": {"labels": {JOB_UID_LABEL: self.uid}}})
        except KubeError as error:
            log.info("failed to label object", child=create.name, error=str(error))
        return DONE

    def cached_uids(self, deletes: Iterable[Delete]) -> set[str]:
        """The UIDs of those deleted objects that the caches still show."""
        children = (
            (delete.uid, self.informers.child(delete.resource, namespace=self.key.namespace, name=delete.name)) for delete in deletes
        )
        return {uid for uid, child in children if child is not None and child.metadata.uid == uid}

    async def _is_down(self, node: str) -> bool:
        """Whether a node is down according to the server. The cache may be stale, and the pod must not run twice."""
        try:
            response = await self.client.call("GET", NODES.path(name=node))
        except NotFoundError:
            return True
        return bool(node_problem(_read_node(response.body)))

    def _is_already_deleted(self, delete: Delete) -> bool:
        existing = self.informers.child(delete.resource, namespace=self.key.namespace, name=delete.name)
        if existing is None or existing.metadata.uid != delete.uid:
            return True
        if existing.metadata.deletion_timestamp is None:
            return False
        # Finalizers keep a pod without a grace period. Another delete would change nothing, and no watch event would follow.
        is_kept = existing.metadata.deletion_grace_period_seconds == 0 and existing.metadata.finalizers
        return delete.grace_seconds is None or bool(is_kept)

    def _expect(self, child: Child) -> None:
        if self.informers.satisfies_expectations(child.resource):
            self.expectations.expect(self.uid, child)

    def _record_version(self, resource: Resource, body: bytes) -> str:
        try:
            version = _read_version(body).metadata.resource_version
        except msgspec.DecodeError:
            log.warning("write response is not an object", resource=resource.qualified_name)
            return ""
        self.informers.gate.record_write(self.uid, resource, version)
        return version


def _is_removed(response: JsonObject) -> bool:
    """Whether the response to a delete says that the object is gone. One that terminates has a grace period or finalizers."""
    if response.get("kind") == "Status":
        return True
    metadata = response.get("metadata") or {}
    return not metadata.get("finalizers") and not metadata.get("deletionGracePeriodSeconds")


def _is_rejection(error: KubeError) -> bool:
    """Whether the error is caused by the object and not by the current state of the server."""
    return isinstance(error, _REJECTIONS) and not (error.status_code == 403 and "status unknown for quota" in str(error))


def _is_not_installed(error: KubeError) -> bool:
    """Whether the resource is not served. A missing namespace names the namespace in the details."""
    return isinstance(error, NotFoundError) and not error.details.get("name")
