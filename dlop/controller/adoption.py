"""Takes orphans in: objects that bear a job's labels and belong to nobody."""

from __future__ import annotations

import structlog

from dlop.controller.snapshot_builder import Orphan
from dlop.controller.writer import Writer
from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.objects import CustomObject
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)


def owner_reference(found: CustomObject) -> JsonObject:
    """What an object of the job says of its owner."""
    return {
        "apiVersion": found.api_version,
        "kind": found.kind,
        "name": found.metadata.name,
        "uid": found.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def adopt(writer: Writer, found: CustomObject, orphans: tuple[Orphan, ...]) -> int:
    """Make the orphans the job's own, if the job is really still there. Says how many were taken in.

    Raises:
        KubeError: the server could not be asked.
    """
    if not await _is_alive(writer):
        return 0
    return sum([await _adopt_one(writer, found, orphan) for orphan in orphans])


async def _is_alive(writer: Writer) -> bool:
    """The cache may be behind: a job that is gone must not adopt anything."""
    key = writer.key
    try:
        live = await writer.client.get(key.resource, key.name, namespace=key.namespace)
    except NotFoundError:
        return False
    return live["metadata"].get("uid") == writer.uid and not live["metadata"].get("deletionTimestamp")


async def _adopt_one(writer: Writer, found: CustomObject, orphan: Orphan) -> bool:
    namespace, name = writer.key.namespace, orphan.found.metadata.name
    try:
        live = await writer.client.get(orphan.resource, name, namespace=namespace)
        owners = list(live["metadata"].get("ownerReferences") or [])
        if live["metadata"]["uid"] != orphan.found.metadata.uid or any(owner.get("controller") for owner in owners):
            return False
        # The uid and the version make sure that it is still the object, in the state, that was looked at.
        body = {
            "metadata": {
                "uid": live["metadata"]["uid"],
                "resourceVersion": live["metadata"]["resourceVersion"],
                "ownerReferences": [*owners, owner_reference(found)],
            }
        }
        answer = await writer.client.patch(orphan.resource, name, body, patch_type=PatchType.MERGE, namespace=namespace)
    except (NotFoundError, ConflictError) as error:
        log.info("an orphan could not be adopted", resource=orphan.resource.qualified_name, child=name, error=str(error))
        return False
    log.info("an orphan was adopted", resource=orphan.resource.qualified_name, child=name)
    writer.scope.gate.wrote(writer.uid, orphan.resource, str(answer["metadata"]["resourceVersion"]))
    return True
