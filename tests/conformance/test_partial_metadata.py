"""Objects without their content: PartialObjectMetadata."""

from __future__ import annotations

from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, decoded

ONE = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
MANY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


async def test_one_object_is_only_its_metadata(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}, labels={"x": "y"}))
    found = decoded(await api.client.call("GET", api.path(CONFIG_MAPS, "a"), accept=ONE))
    assert found == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}


async def test_a_list_is_only_its_metadata(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    found = decoded(await api.client.call("GET", api.path(WIDGETS), accept=MANY))
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    item = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}
    assert found["items"] == [item]
    assert int(found["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


async def test_a_watch_is_only_its_metadata(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    async with api.streamed(LEASES, accept=ONE) as watch:
        kind, found = await watch.next()
    assert kind is WatchEventType.ADDED
    assert found == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}


async def test_a_write_may_be_answered_with_metadata_alone(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    patch = b'{"data":{"k":"v"}}'
    content_type = "application/merge-patch+json"
    answer = await api.client.call("PATCH", api.path(CONFIG_MAPS, "a"), body=patch, content_type=content_type, accept=ONE)
    assert set(decoded(answer)) == {"kind", "apiVersion", "metadata"}
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "v"}
