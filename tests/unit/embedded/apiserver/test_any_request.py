"""No request causes an internal error of the embedded API server."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.thorough import examples

_WIDGETS: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}
_COLLECTIONS = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/example.org/v1/namespaces/default/widgets",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
]
_SUBRESOURCES = ["", "", "", "/status", "/scale", "/binding", "/eviction", "/finalize", "/nothing"]
_FIELDS = [
    "apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid",
    "resourceVersion", "generateName", "spec", "status", "data", "containers", "image", "env", "ports", "replicas", "conditions",
    "type", "target", "deleteOptions", "preconditions", "propagationPolicy", "dryRun", "op", "path", "value", "from", "$patch",
    "$retainKeys", "$setElementOrder/containers", "deletionTimestamp", "creationTimestamp", "generation", "versions", "group", "names",
]  # fmt: skip
_STRINGS = [
    "",
    "a",
    "default",
    "v1",
    "ConfigMap",
    "Pod",
    "example.org/v1",
    "Widget",
    "add",
    "remove",
    "/spec",
    "replace",
    "0",
    "7",
    "é",
    "All",
]

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(_STRINGS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=10,
)
objects = st.fixed_dictionaries(
    {}, optional={"metadata": st.fixed_dictionaries({"name": st.sampled_from(["a", "b", 1, ""])}, optional={"labels": values}) | values}
).flatmap(lambda base: st.dictionaries(st.sampled_from(_FIELDS), values, max_size=4).map(lambda rest: {**rest, **base}))
bodies = (objects | values).map(msgspec.json.encode) | st.binary(max_size=20) | st.none()
paths = st.builds(
    lambda collection, name, rest: f"{collection}{f'/{name}{rest}' if name else ''}",
    st.sampled_from(_COLLECTIONS),
    st.sampled_from(["", "", "a", "b", "default", "%2F"]),
    st.sampled_from(_SUBRESOURCES),
) | st.text("/apis%v1.?", max_size=12).map(lambda text: f"/{text}")
queries = st.lists(
    st.tuples(
        st.sampled_from(
            ["watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "dryRun",
             "fieldValidation", "sendInitialEvents", "allowWatchBookmarks", "propagationPolicy", "gracePeriodSeconds", "includeObject"]
        ),
        st.sampled_from(["", "0", "1", "-1", "x", "true", "All", "Strict", "Ignore", "Exact", "NotOlderThan", "a=b", "a in (b)"]),
    ),
    max_size=3,
)  # fmt: skip
accepts = st.sampled_from(
    ["", "application/json", "*/*", "application/yaml", "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io", ";;q=x,",
     "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"]
)  # fmt: skip
content_types = st.sampled_from(
    ["application/json", "application/yaml", "application/merge-patch+json", "application/json-patch+json", "text/plain", "",
     "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/vnd.kubernetes.protobuf"]
)  # fmt: skip
requests = st.builds(
    lambda method, path, query, accept, content_type, body: Request(
        method, path, (*query, ("timeoutSeconds", "1")), {"authorization": "Bearer t", "accept": accept, "content-type": content_type}, body
    ),
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "FROB"]),
    paths,
    queries,
    accepts,
    content_types,
    bodies,
)


def is_internal_error(response: Response) -> bool:
    try:
        status: Any = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return False
    return isinstance(status, dict) and status.get("reason") == "InternalError" and "Error: " in str(status.get("message"))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(requests, min_size=1, max_size=8))
@virtual_time
async def test_no_sequence_of_requests_causes_an_internal_error(sequence: list[Request]) -> None:
    async with EmbeddedCluster(token="t") as cluster:
        await cluster.client().create(CUSTOM_RESOURCE_DEFINITIONS, _WIDGETS)
        for request in sequence:
            response = await cluster.server.handle(request)
            if isinstance(response, StreamResponse):
                assert all([chunk.endswith(b"\n") async for chunk in response.chunks])
            else:
                assert 200 <= response.status < 600
                assert not is_internal_error(response), response.body
        # The server still works.
        namespaces = await cluster.server.handle(Request("GET", "/api/v1/namespaces", (), {"authorization": "Bearer t"}))
        assert namespaces.status == 200
