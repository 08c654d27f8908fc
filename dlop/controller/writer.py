"""Writes for one job, each with all that belongs to it.

A create or delete is expected before it is sent; the version that the server answers with is noted, so that no pass
looks at the job before the caches show it. What the server answers is told as one of a few results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import structlog

from dlop.api.child_objects import Create
from dlop.api.constants import JOB_UID_LABEL
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey
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
from dlop.kube.objects import ObjectMeta, PartialObject, reader
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Patch

log = structlog.get_logger(__name__)


class _Version(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""


class _Answer(msgspec.Struct, frozen=True, gc=False):
    """All that is of interest in the answer to a write that went well."""

    metadata: _Version = _Version()


_read_partial = reader(PartialObject)
_read_version = msgspec.json.Decoder(_Answer).decode
_QUERY = (("fieldManager", FIELD_MANAGER),)
_MERGE_PATCH = "application/merge-patch+json"
_REFUSALS = (BadRequestError, ForbiddenError, InvalidError, RequestTooLargeError)


class WriteResult(Enum):
    """What has become of a write."""

    DONE = "done"
    SAME = "the server has left the object as it was"
    REFUSED = "the server does not take the object"
    TAKEN = "the name belongs to another object"
    LENT = "the name belongs to another object, which will do"
    STALE = "the caches are behind: what was asked for is there, or gone, already"
    UNKNOWN = "the server has trouble, or its answer was lost"


@dataclass(frozen=True, slots=True)
class Written:
    """The result of one write."""

    result: WriteResult
    error: KubeError | None = None


DONE = Written(WriteResult.DONE)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes for one job."""

    client: Client
    expectations: Expectations
    scope: InformerSet
    key: JobKey
    uid: str

    async def create(self, creation: Create) -> Written:
        """Create an object, unless the cache shows that its name is taken."""
        child = Child(creation.resource, self.key.namespace, creation.name)
        found = self.scope.child(creation.resource, namespace=self.key.namespace, name=creation.name)
        if found is not None:
            return Written(WriteResult.LENT if self._will_do(creation, found.metadata) else WriteResult.TAKEN)
        self._expect(child)
        try:
            path = creation.resource.path(namespace=self.key.namespace)
            answer = await self.client.call("POST", path, query=_QUERY, body=self._visible(creation))
        except AmbiguousWriteError as error:
            self.expectations.doubt(self.uid, child)
            return Written(WriteResult.UNKNOWN, error)
        except KubeError as error:
            self.expectations.settle(self.uid, child)
            return await self._not_created(creation, error)
        self._note(creation.resource, answer.body)
        return DONE

    async def delete(self, deletion: Delete) -> Written:
        """Delete an object, if it is still the same. Of one that leaves already, the server would have nothing new to tell."""
        if self._has_left(deletion):
            return Written(WriteResult.STALE)
        child = Child(deletion.resource, self.key.namespace, deletion.name, deletion.uid)
        self._expect(child)
        try:
            await self.client.delete(
                deletion.resource,
                deletion.name,
                namespace=self.key.namespace,
                uid=deletion.uid,
                resource_version=deletion.resource_version,
                grace_seconds=deletion.grace_seconds,
            )
        except (NotFoundError, ConflictError) as error:
            self.expectations.settle(self.uid, child)
            return Written(WriteResult.STALE, error)
        except AmbiguousWriteError as error:
            self.expectations.doubt(self.uid, child)
            return Written(WriteResult.UNKNOWN, error)
        except KubeError as error:
            self.expectations.settle(self.uid, child)
            return Written(WriteResult.UNKNOWN, error)
        return DONE

    async def change(self, change: Patch) -> Written:
        """Change an object, if it is still the same. What the body does not name stays as it is.

        A definition may drop what is written, or a webhook put it back: then seeing it written would only lead to another try.
        """
        made_of = {name: value for name, value in change.body.items() if name not in ("apiVersion", "kind")}
        metadata = {"uid": change.uid, "annotations": change.body["metadata"].get("annotations") or {}}
        before = self.scope.child(change.resource, namespace=self.key.namespace, name=change.name)
        try:
            version = await self._merge(change.resource, change.name, {**made_of, "metadata": metadata})
        except (NotFoundError, ConflictError) as error:
            return Written(WriteResult.STALE, error)
        except KubeError as error:
            return Written(WriteResult.REFUSED if _is_refusal(error) else WriteResult.UNKNOWN, error)
        return Written(WriteResult.SAME) if before is not None and before.metadata.resource_version == version else DONE

    async def _merge(self, resource: Resource, name: str, body: JsonObject) -> str:
        """Says which version of the object it has become; empty when the server does not."""
        path = resource.path(namespace=self.key.namespace, name=name)
        answer = await self.client.call("PATCH", path, query=_QUERY, body=body, content_type=_MERGE_PATCH)
        return self._note(resource, answer.body)

    async def patch_status(self, patch: Mapping[str, Any], *, resource_version: str, unless: Callable[[], bool] | None) -> None:
        """Change the job's status, if nobody has changed the job since.

        With `unless` it lets others go first where writes are many, and is given up if `unless` then says yes.

        Raises:
            OutdatedError: it was given up.
            KubeError: it was not changed, or nobody knows.
        """
        client = self.client if unless is None else self.client.patient(unless=unless)
        body = {"metadata": {"uid": self.uid, "resourceVersion": resource_version}, "status": patch}
        path = self.key.resource.path(namespace=self.key.namespace, name=self.key.name, subresource="status")
        answer = await client.call("PATCH", path, query=_QUERY, body=body, content_type=_MERGE_PATCH)
        self._note(self.key.resource, answer.body)
        has_record = self.scope.hindsight.wrote(self.uid, answer.body)
        if "dlop" in patch and not has_record:
            # Without its record the job would be begun anew in every pass.
            raise ConfigurationError(
                f"the definition of {self.key.resource.qualified_name} drops status.dlop, it may be that of another operator: "
                "bring in dlop's own with `dlop install --take-over`"
            )

    async def _not_created(self, creation: Create, error: KubeError) -> Written:
        if isinstance(error, AlreadyExistsError):
            return await self._taken_by(creation, error)
        return Written(WriteResult.REFUSED if _is_refusal(error) or _is_unserved(error) else WriteResult.UNKNOWN, error)

    async def _taken_by(self, creation: Create, conflict: AlreadyExistsError) -> Written:
        """The server says that the name is taken, and the cache does not show it: perhaps the object is the job's own."""
        path = creation.resource.path(namespace=self.key.namespace, name=creation.name)
        try:
            answer = await self.client.call("GET", path)
        except NotFoundError as error:
            return Written(WriteResult.STALE, error)
        except KubeError as error:
            return Written(WriteResult.UNKNOWN, error)
        found = _read_partial(answer.body).metadata
        if self._will_do(creation, found):
            return Written(WriteResult.LENT)
        is_own = found.controller is not None and found.controller.uid == self.uid
        if not self.scope.sees_all(creation.resource):  # then no cache will ever show who has the name
            return await self._show(creation) if is_own else Written(WriteResult.REFUSED, conflict)
        self._note(creation.resource, answer.body)
        return Written(WriteResult.STALE if is_own else WriteResult.TAKEN)

    def _will_do(self, creation: Create, found: ObjectMeta) -> bool:
        """Whether somebody else's object takes the place of one's own. That of a former job of this name is about to go."""
        owner = found.controller
        stays = found.deletion_timestamp is None and not (owner is not None and self.key.is_named_by(owner))
        return creation.is_shareable and stays

    async def _show(self, creation: Create) -> Written:
        """Give an object of the job the label that it lacks: another operator may have made it."""
        try:
            await self._merge(creation.resource, creation.name, {"metadata": {"labels": {JOB_UID_LABEL: self.uid}}})
        except KubeError as error:
            log.info("an object of the job cannot be given its label", child=creation.name, error=str(error))
        return DONE

    def _has_left(self, deletion: Delete) -> bool:
        found = self.scope.child(deletion.resource, namespace=self.key.namespace, name=deletion.name)
        if found is None or found.metadata.uid != deletion.uid:
            return True
        return found.metadata.deletion_timestamp is not None and deletion.grace_seconds is None

    def _visible(self, creation: Create) -> JsonObject:
        """The body, with the label without which the cache would never show the object."""
        if creation.resource in (PODS, SERVICES) or self.scope.cache(creation.resource) is None:
            return creation.body
        metadata = creation.body["metadata"]
        return {**creation.body, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), JOB_UID_LABEL: self.uid}}}

    def _expect(self, child: Child) -> None:
        # Without a cache nothing would ever show that it has happened.
        if self.scope.cache(child.resource) is not None:
            self.expectations.expect(self.uid, child)

    def _note(self, resource: Resource, body: bytes) -> str:
        try:
            version = _read_version(body).metadata.resource_version
        except msgspec.DecodeError:
            log.warning("the answer to a write is no object", resource=resource.qualified_name)
            return ""
        self.scope.gate.wrote(self.uid, resource, version)
        return version


def _is_refusal(error: KubeError) -> bool:
    """Whether it is about the object, and not about the moment."""
    return isinstance(error, _REFUSALS) and not (error.status_code == 403 and "status unknown for quota" in str(error))


def _is_unserved(error: KubeError) -> bool:
    """Whether it is the resource that is not there any more, and not the namespace of the object."""
    return isinstance(error, NotFoundError) and not error.details.get("name")
