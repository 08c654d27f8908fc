"""Strategic merge patch: lists of built-in types are merged by the key of their items."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, owner, pod, service
from tests.conformance.support import Api, refused


async def strategic(api: Api, patch: JsonObject, *, subresource: str | None = None) -> JsonObject:
    return await api.patch(PODS, "a", patch, patch_type=PatchType.STRATEGIC, subresource=subresource)


async def test_containers_are_merged_by_name(api: Api) -> None:
    both = [{"name": "main", "image": "one"}, {"name": "side", "image": "two"}]
    await api.create(PODS, pod("a", spec={"containers": both}))
    patched = await strategic(api, {"spec": {"containers": [{"name": "side", "image": "new"}]}})
    assert [(each["name"], each["image"]) for each in patched["spec"]["containers"]] == [("main", "one"), ("side", "new")]


async def test_conditions_are_merged_by_type(api: Api) -> None:
    await api.create(PODS, pod("a"))
    first = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    await strategic(api, {"status": {"conditions": first}}, subresource="status")
    patched = await strategic(api, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
    assert {each["type"]: each["status"] for each in patched["status"]["conditions"]} == {"Ready": "True", "Initialized": "True"}


async def test_an_item_is_removed_by_a_delete_directive(api: Api) -> None:
    await api.create(PODS, pod("a"))
    both = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    await strategic(api, {"status": {"conditions": both}}, subresource="status")
    removal = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    patched = await strategic(api, removal, subresource="status")
    assert [each["type"] for each in patched["status"]["conditions"]] == ["Initialized"]


async def test_a_list_is_replaced_whole_by_a_replace_directive(api: Api) -> None:
    await api.create(PODS, pod("a"))
    await strategic(api, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, subresource="status")
    whole = {"status": {"conditions": [{"$patch": "replace"}, {"type": "Initialized", "status": "True"}]}}
    patched = await strategic(api, whole, subresource="status")
    assert [each["type"] for each in patched["status"]["conditions"]] == ["Initialized"]


async def test_owners_are_merged_by_uid(api: Api) -> None:
    owners = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("x", "y")]
    await api.create(PODS, pod("a", ownerReferences=[owner(owners[0])]))
    patched = await strategic(api, {"metadata": {"ownerReferences": [owner(owners[1])]}})
    assert {each["name"] for each in patched["metadata"]["ownerReferences"]} == {"x", "y"}
    removal = {"$patch": "delete", "uid": owners[0]["metadata"]["uid"]}
    patched = await strategic(api, {"metadata": {"ownerReferences": [removal]}})
    assert [each["name"] for each in patched["metadata"]["ownerReferences"]] == ["y"]


async def test_finalizers_are_merged_as_a_set_and_removed_by_name(api: Api) -> None:
    await api.create(PODS, pod("a", finalizers=["example.org/one"]))
    patched = await strategic(api, {"metadata": {"finalizers": ["example.org/two"]}})
    assert set(patched["metadata"]["finalizers"]) == {"example.org/one", "example.org/two"}
    patched = await strategic(api, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/one"]}})
    assert patched["metadata"]["finalizers"] == ["example.org/two"]


async def test_service_ports_are_merged_by_port(api: Api) -> None:
    await api.create(SERVICES, service("a"))
    patch = {"spec": {"ports": [{"name": "metrics", "port": 9090}]}}
    patched = await api.patch(SERVICES, "a", patch, patch_type=PatchType.STRATEGIC)
    assert {each["port"]: each["name"] for each in patched["spec"]["ports"]} == {80: "main", 9090: "metrics"}


async def test_a_null_removes_a_key_and_maps_are_merged(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"keep": "1", "drop": "2"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"drop": None, "add": "3"}}, patch_type=PatchType.STRATEGIC)
    assert patched["data"] == {"keep": "1", "add": "3"}


async def test_a_map_is_replaced_whole_by_a_replace_directive(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"old": "1"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"$patch": "replace", "new": "2"}}, patch_type=PatchType.STRATEGIC)
    assert patched["data"] == {"new": "2"}


async def test_tolerations_are_replaced_because_they_have_no_key(api: Api) -> None:
    await api.create(PODS, pod("a"))
    before = (await api.get(PODS, "a"))["spec"]["tolerations"]
    more = [*before, {"key": "extra", "operator": "Exists"}]
    patched = await strategic(api, {"spec": {"tolerations": more}})
    assert patched["spec"]["tolerations"] == more


async def test_a_strategic_patch_that_is_no_json_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.patch(CONFIG_MAPS, "a", b"{", patch_type=PatchType.STRATEGIC), BadRequestError)
    assert (error.status_code, error.status_reason) == (400, "BadRequest")
