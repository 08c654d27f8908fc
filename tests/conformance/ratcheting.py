"""Objects that violate a validation rule which was added after they were created."""

from __future__ import annotations

import uuid

from dlop.kube.client import PatchType
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import crd, crd_version, object_of, object_schema
from tests.conformance.support import Api, validation_error


async def create_before_rule(api: Api, spec: JsonObject) -> Resource:
    """Create the object `a` of a new resource, then add the rule `self.size < 3` to its CRD and wait until it is enforced."""
    resource = Resource(f"late-{uuid.uuid4().hex[:8]}.dlop.dev", "v1", "latecomers", "Latecomer")
    await api.install(_crd(resource))
    await api.create(resource, object_of(resource, "a", spec=spec))
    with_rule = _crd(resource, {"rule": "self.size < 3", "message": "too large"})
    name = resource.qualified_name
    await api.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": with_rule["spec"]}, patch_type=PatchType.MERGE)
    await api.wait_until(lambda: validation_error(api.create(resource, object_of(resource, "b", spec=spec), dry_run=True)), bool)
    return resource


def _crd(resource: Resource, *rules: JsonObject) -> JsonObject:
    part = {"type": "object", "properties": {"known": {"type": "integer"}}, "x-kubernetes-preserve-unknown-fields": True}
    spec: JsonObject = {"type": "object", "properties": {"size": {"type": "integer"}, "part": part}, "required": ["size"]}
    spec |= {"x-kubernetes-validations": list(rules)} if rules else {}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return crd(resource, crd_version("v1", object_schema(spec=spec, status=status), subresources={"status": {}}))
