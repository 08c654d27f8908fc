"""Strategic merge patch: lists of built-in types are merged by key."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES
from tests.conformance.bodies import config_map, owner_reference, pod, service
from tests.conformance.support import Api, expect_error


async def test_containers_are_merged_by_name(api: Api) -> None:
    containers = [{"name": "main", "image": "one"}, {"name": "side", "image": "two"}]
    await api.create(PODS, pod("a", spec={"containers": containers}))
    patched = await api.patch(PODS, "a", {"spec": {"containers": [{"name": "side", "image": "new"}]}}, patch_type=PatchType.STRATEGIC)
    assert [(container["name"], container["image"]) for container in patched["spec"]["containers"]] == [("main", "one"), ("side", "new")]


async def test_conditions_are_merged_by_type(api: Api) -> None:
    await api.create(PODS, pod("a"))
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    await api.patch(PODS, "a", {"status": {"conditions": conditions}}, subresource="status", patch_type=PatchType.STRATEGIC)
    patched = await api.patch(
        PODS, "a", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status", patch_type=PatchType.STRATEGIC
    )
    assert {condition["type"]: condition["status"] for condition in patched["status"]["conditions"]} == {
        "Ready": "True",
        "Initialized": "True",
    }


async def test_a_delete_directive_removes_an_item(api: Api) -> None:
    await api.create(PODS, pod("a"))
    conditions = [{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]
    await api.patch(PODS, "a", {"status": {"conditions": conditions}}, subresource="status", patch_type=PatchType.STRATEGIC)
    removal = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    patched = await api.patch(PODS, "a", removal, subresource="status", patch_type=PatchType.STRATEGIC)
    assert [condition["type"] for condition in patched["status"]["conditions"]] == ["Initialized"]


async def test_a_replace_directive_replaces_a_list(api: Api) -> None:
    await api.create(PODS, pod("a"))
    await api.patch(
        PODS, "a", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, subresource="status", patch_type=PatchType.STRATEGIC
    )
    replacement = {"status": {"conditions": [{"$patch": "replace"}, {"type": "Initialized", "status": "True"}]}}
    patched = await api.patch(PODS, "a", replacement, subresource="status", patch_type=PatchType.STRATEGIC)
    assert [condition["type"] for condition in patched["status"]["conditions"]] == ["Initialized"]


async def test_owner_references_are_merged_by_uid(api: Api) -> None:
    owners = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("x", "y")]
    await api.create(PODS, pod("a", ownerReferences=[owner_reference(owners[0])]))
    patched = await api.patch(PODS, "a", {"metadata": {"ownerReferences": [owner_reference(owners[1])]}}, patch_type=PatchType.STRATEGIC)
    assert {reference["name"] for reference in patched["metadata"]["ownerReferences"]} == {"x", "y"}
    removal = {"$patch": "delete", "uid": owners[0]["metadata"]["uid"]}
    patched = await api.patch(PODS, "a", {"metadata": {"ownerReferences": [removal]}}, patch_type=PatchType.STRATEGIC)
    assert [reference["name"] for reference in patched["metadata"]["ownerReferences"]] == ["y"]


async def test_finalizers_are_merged_as_a_set_and_removed_by_value(api: Api) -> None:
    await api.create(PODS, pod("a", finalizers=["example.org/one"]))
    patched = await api.patch(PODS, "a", {"metadata": {"finalizers": ["example.org/two"]}}, patch_type=PatchType.STRATEGIC)
    assert set(patched["metadata"]["finalizers"]) == {"example.org/one", "example.org/two"}
    patched = await api.patch(
        PODS, "a", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/one"]}}, patch_type=PatchType.STRATEGIC
    )
    assert patched["metadata"]["finalizers"] == ["example.org/two"]


async def test_service_ports_are_merged_by_port(api: Api) -> None:
    await api.create(SERVICES, service("a"))
    patch = {"spec": {"ports": [{"name": "metrics", "port": 9090}]}}
    patched = await api.patch(SERVICES, "a", patch, patch_type=PatchType.STRATEGIC)
    assert {port["port"]: port["name"] for port in patched["spec"]["ports"]} == {80: "main", 9090: "metrics"}


async def test_maps_are_merged_and_null_removes_a_key(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"keep": "1", "drop": "2"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"drop": None, "add": "3"}}, patch_type=PatchType.STRATEGIC)
    assert patched["data"] == {"keep": "1", "add": "3"}


async def test_a_replace_directive_replaces_a_map(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"old": "1"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"$patch": "replace", "new": "2"}}, patch_type=PatchType.STRATEGIC)
    assert patched["data"] == {"new": "2"}


async def test_tolerations_have_no_merge_key_and_are_replaced(api: Api) -> None:
    await api.create(PODS, pod("a"))
    before = (await api.get(PODS, "a"))["spec"]["tolerations"]
    tolerations = [*before, {"key": "extra", "operator": "Exists"}]
    patched = await api.patch(PODS, "a", {"spec": {"tolerations": tolerations}}, patch_type=PatchType.STRATEGIC)
    assert patched["spec"]["tolerations"] == tolerations


async def test_a_strategic_merge_patch_that_is_not_json_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", b"{", patch_type=PatchType.STRATEGIC), BadRequestError)
    assert (error.status_code, error.status_reason) == (400, "BadRequest")
