"""The PartialObjectMetadata representation."""

from __future__ import annotations

from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, decode_json, over_https

pytestmark = over_https(reason="the Accept header selects the representation of responses and watch streams")

PARTIAL_OBJECT = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


async def test_a_get_can_return_only_metadata(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}, labels={"x": "y"}))
    partial = await api.get_json(api.path(CONFIG_MAPS, "a"), accept=PARTIAL_OBJECT)
    assert partial == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}


async def test_a_list_can_return_only_metadata(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    listed = await api.get_json(api.path(WIDGETS), accept=PARTIAL_LIST)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    item = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}
    assert listed["items"] == [item]
    assert int(listed["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


async def test_a_watch_can_return_only_metadata(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    async with api.watch_as(LEASES, accept=PARTIAL_OBJECT) as watch:
        event_type, partial = await watch.next()
    assert event_type is WatchEventType.ADDED
    assert partial == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}


async def test_a_patch_can_return_only_metadata(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    patch = b'{"data":{"k":"v"}}'
    content_type = "application/merge-patch+json"
    response = await api.client.call("PATCH", api.path(CONFIG_MAPS, "a"), body=patch, content_type=content_type, accept=PARTIAL_OBJECT)
    assert set(decode_json(response)) == {"kind", "apiVersion", "metadata"}
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "v"}
