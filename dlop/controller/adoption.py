"""Adoption of orphans: objects without a controller that carry the labels of a job, or refer to it as owner and have a name it needs."""

from __future__ import annotations

import structlog

from dlop.api.constants import JOB_UID_LABEL
from dlop.controller.snapshot_builder import Orphan
from dlop.controller.writer import Writer
from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.objects import CustomObject
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)


def make_owner_reference(owner: CustomObject) -> JsonObject:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def adopt(writer: Writer, owner: CustomObject, orphans: tuple[Orphan, ...]) -> int:
    """Make the job the controller of the orphans, unless it is deleted or terminating. Returns the number of adopted objects.

    Raises:
        KubeError: the API server could not be reached.
    """
    if not await _is_alive(writer):
        return 0
    return sum([await _adopt_one(writer, owner, orphan) for orphan in orphans])


async def _is_alive(writer: Writer) -> bool:
    """Read the job from the API server. The cache may be stale, and a deleted job must not adopt anything."""
    key = writer.key
    try:
        live = await writer.client.get(key.resource, key.name, namespace=key.namespace)
    except NotFoundError:
        return False
    return live["metadata"].get("uid") == writer.uid and not live["metadata"].get("deletionTimestamp")


async def _adopt_one(writer: Writer, owner: CustomObject, orphan: Orphan) -> bool:
    namespace, name = writer.key.namespace, orphan.child.metadata.name
    try:
        live = await writer.client.get(orphan.resource, name, namespace=namespace)
        owners = [each for each in live["metadata"].get("ownerReferences") or [] if each.get("uid") != writer.uid or each.get("controller")]
        if live["metadata"]["uid"] != orphan.child.metadata.uid or any(reference.get("controller") for reference in owners):
            return False
        # The uid and the resource version make the patch fail if the object was replaced or changed since the read.
        body = {
            "metadata": {
                "uid": live["metadata"]["uid"],
                "resourceVersion": live["metadata"]["resourceVersion"],
                "ownerReferences": [*owners, make_owner_reference(owner)],
                "labels": {JOB_UID_LABEL: writer.uid},
            }
        }
        adopted = await writer.client.patch(orphan.resource, name, body, patch_type=PatchType.MERGE, namespace=namespace)
    except (NotFoundError, ConflictError) as error:
        log.info("failed to adopt orphan", resource=orphan.resource.qualified_name, child=name, error=str(error))
        return False
    log.info("adopted orphan", resource=orphan.resource.qualified_name, child=name)
    writer.informers.gate.record_write(writer.uid, orphan.resource, str(adopted["metadata"]["resourceVersion"]))
    return True
