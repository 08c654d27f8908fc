"""Reading: what a version, a selector or a namespace changes about the answer."""

from __future__ import annotations

from dlop.kube.errors import NotFoundError, ServerError
from dlop.kube.resources import LEASES, PODS
from tests.conformance.bodies import lease, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, decoded, failure, refused, version_of


async def test_a_read_at_any_version_gives_the_object(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    version = created["metadata"]["resourceVersion"]
    assert await api.get(LEASES, "a", resource_version=version) == created


async def test_a_read_of_what_is_not_there_names_it_with_its_group(api: Api) -> None:
    error = await refused(api.get(LEASES, "a"), NotFoundError)
    details = {"name": "a", "group": "coordination.k8s.io", "kind": "leases"}
    assert error.status == failure(404, "NotFound", 'leases.coordination.k8s.io "a" not found', details)


async def test_a_read_at_a_version_that_is_no_number_is_refused(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    error = await refused(api.get(LEASES, "a", resource_version="abc"), ServerError)
    message = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert (error.status_code, str(error)) == (500, message)


async def test_a_list_of_all_namespaces_is_ordered_by_namespace_and_name(api: Api) -> None:
    label = {"case": api.namespace}
    for name, namespace in (("b", api.namespace), ("a", "default"), ("a", api.namespace), ("c", "default")):
        await api.client.create(LEASES, lease(f"{api.namespace}-{name}", labels=label), namespace=namespace)
    found = (await api.client.list(LEASES, label_selector=f"case={api.namespace}"))["items"]
    places = [(each["metadata"]["namespace"], each["metadata"]["name"][-1]) for each in found]
    assert places == [(api.namespace, "a"), (api.namespace, "b"), ("default", "a"), ("default", "c")]


async def test_a_page_of_selected_objects_does_not_say_how_many_remain(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create(LEASES, lease(name, labels={"x": "y"}))
    query = (("limit", "2"), ("labelSelector", "x=y"))
    metadata = decoded(await api.client.call("GET", api.path(LEASES), query=query))["metadata"]
    assert metadata["continue"]
    assert "remainingItemCount" not in metadata


async def test_pages_keep_to_their_selector(api: Api) -> None:
    for index in range(6):
        await api.create(LEASES, lease(f"a{index}", labels={"even": str(index % 2 == 0)}))
    found = api.client.pages(LEASES, namespace=api.namespace, label_selector="even=True", page_size=2)
    assert [len(page.items) async for page in found] == [2, 1]


async def test_a_version_that_was_read_is_never_older_than_one_that_was_written(api: Api) -> None:
    for index in range(5):
        written = await api.create(WIDGETS, widget(f"a{index}"))
        assert version_of(await api.list(WIDGETS)) >= version_of(written)
        assert await api.get(WIDGETS, f"a{index}") == written


async def test_an_object_with_odd_but_legal_content_comes_back_unchanged(api: Api) -> None:
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


async def test_an_empty_body_of_a_pod_status_changes_nothing(api: Api) -> None:
    created = await api.create(PODS, pod("a"))
    assert await api.patch(PODS, "a", {}, subresource="status") == created
