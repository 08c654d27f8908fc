"""Gets and lists: resource versions, selectors and namespaces."""

from __future__ import annotations

from dlop.kube.errors import NotFoundError, ServerError
from dlop.kube.resources import LEASES, PODS
from tests.conformance.bodies import lease, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status, over_https, resource_version_of

pytestmark = over_https(reason="content must survive JSON encoding over HTTP")


async def test_a_get_at_a_resource_version_returns_the_object(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    version = created["metadata"]["resourceVersion"]
    assert await api.get(LEASES, "a", resource_version=version) == created


async def test_a_get_of_a_missing_object_is_not_found_with_its_group(api: Api) -> None:
    error = await expect_error(api.get(LEASES, "a"), NotFoundError)
    details = {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}
    assert error.status == failure_status(404, "NotFound", 'leases.coordination.k8s.io "a" not found', details)


async def test_a_get_at_an_invalid_resource_version_is_a_server_error(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    error = await expect_error(api.get(LEASES, "a", resource_version="abc"), ServerError)
    message = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert (error.status_code, str(error)) == (500, message)


async def test_a_list_of_all_namespaces_is_sorted_by_namespace_and_name(api: Api) -> None:
    labels = {"case": api.namespace}
    for name, namespace in (("b", api.namespace), ("a", "default"), ("a", api.namespace), ("c", "default")):
        await api.client.create(LEASES, lease(f"{api.namespace}-{name}", labels=labels), namespace=namespace)
    items = (await api.client.list(LEASES, label_selector=f"case={api.namespace}"))["items"]
    identities = [(item["metadata"]["namespace"], item["metadata"]["name"][-1]) for item in items]
    assert identities == [(api.namespace, "a"), (api.namespace, "b"), ("default", "a"), ("default", "c")]


async def test_a_page_with_a_selector_has_no_remaining_item_count(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create(LEASES, lease(name, labels={"x": "y"}))
    metadata = (await api.get_json(api.path(LEASES), limit="2", labelSelector="x=y"))["metadata"]
    assert metadata["continue"]
    assert "remainingItemCount" not in metadata


async def test_all_pages_apply_the_selector(api: Api) -> None:
    for index in range(6):
        await api.create(LEASES, lease(f"a{index}", labels={"even": str(index % 2 == 0)}))
    pages = api.client.pages(LEASES, namespace=api.namespace, label_selector="even=True", page_size=2)
    assert [len(page.items) async for page in pages] == [2, 1]


async def test_reads_are_never_older_than_the_last_write(api: Api) -> None:
    for index in range(5):
        created = await api.create(WIDGETS, widget(f"a{index}"))
        assert resource_version_of(await api.list(WIDGETS)) >= resource_version_of(created)
        assert await api.get(WIDGETS, f"a{index}") == created


async def test_unusual_but_valid_content_is_stored_unchanged(api: Api) -> None:
    spec = {
        "text": 'ünïcode \u2028 \U0001f600 \\ "quoted" <&>',
        "big": 2**53 + 1,
        "small": -1.5e-7,
        "empty": {},
        "none": [],
        "deep": [[[]]],
    }
    created = await api.create(WIDGETS, widget("a", spec))
    assert created["spec"] == spec
    assert (await api.get(WIDGETS, "a"))["spec"] == spec


async def test_an_empty_status_patch_changes_nothing(api: Api) -> None:
    created = await api.create(PODS, pod("a"))
    assert await api.patch(PODS, "a", {}, subresource="status") == created
