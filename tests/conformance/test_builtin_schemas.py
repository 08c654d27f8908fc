"""The field tables of the embedded server match the OpenAPI schemas of the real one."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet

from dlop.embedded.apiserver.core import builtin_types
from dlop.embedded.apiserver.resource_type import ResourceType
from tests.conformance.schema_diff import schema_differences
from tests.conformance.support import Api, decode_json, only_on
from tests.kubernetes_versions import since

TYPES = builtin_types()
NEWEST_FIELDS = {
    "endpointslices.discovery.k8s.io": since("1.33", reason="hints.forNodes"),
    "horizontalpodautoscalers.autoscaling": since("1.33", reason="behavior.scaleUp.tolerance"),
    "leases.coordination.k8s.io": since("1.31", reason="preferredHolder and strategy"),
    "nodes": since("1.35", reason="declaredFeatures"),
    "pods": since("1.36", reason="schedulingGroup"),
}
"""The types with fields that older servers do not have."""


def with_versions(builtin_type: ResourceType) -> ParameterSet:
    name = builtin_type.resource.qualified_name
    return pytest.param(builtin_type, id=name, marks=[NEWEST_FIELDS[name]] if name in NEWEST_FIELDS else [])


@only_on("real", reason="the test compares the field tables of the embedded server with the OpenAPI schemas of the real one")
@pytest.mark.parametrize("builtin_type", [with_versions(each) for each in TYPES])
async def test_a_built_in_type_has_the_fields_of_the_real_server(api: Api, builtin_type: ResourceType) -> None:
    resource = builtin_type.resource
    api_path = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    components = decode_json(await api.send("GET", f"/openapi/v3/{api_path}"))["components"]["schemas"]
    gvk = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    (real,) = [schema for schema in components.values() if gvk in schema.get("x-kubernetes-group-version-kind", [])]
    assert builtin_type.schema is not None
    assert schema_differences(components, real, builtin_type.schema, resource.kind) == []
