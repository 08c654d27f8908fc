"""Label and field selectors."""

from __future__ import annotations

import pytest

from dlop.kube.errors import BadRequestError
from dlop.kube.resources import CONFIG_MAPS, PODS, SECRETS
from tests.conformance.bodies import config_map, pod
from tests.conformance.crds import WIDGETS
from tests.conformance.support import Api, expect_error, failure_status, over_https

pytestmark = over_https(reason="a selector is escaped in the query string")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["prod", "test"]),
        ("app==web", ["prod", "test"]),
        ("app!=web", ["bare", "batch"]),
        ("app=web,tier=prod", ["prod"]),
        ("app in (web, batch)", ["batch", "prod", "test"]),
        ("tier notin (prod)", ["bare", "batch", "test"]),
        ("tier", ["prod", "test"]),
        ("!tier", ["bare", "batch"]),
        ("weight>5", ["prod"]),
        ("weight<5", ["test"]),
        ("app=", []),
        ("", ["bare", "batch", "prod", "test"]),
    ],
)
async def test_a_label_selector_selects_matching_objects(api: Api, selector: str, expected: list[str]) -> None:
    labels: dict[str, dict[str, str]] = {
        "prod": {"app": "web", "tier": "prod", "weight": "10"},
        "test": {"app": "web", "tier": "test", "weight": "2"},
        "batch": {"app": "batch"},
        "bare": {},
    }
    for name, object_labels in labels.items():
        await api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": object_labels}})
    assert await api.list_names(SECRETS, label_selector=selector) == expected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a=b!", "found '!', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
    ],
)
async def test_an_invalid_label_selector_is_a_bad_request(api: Api, selector: str, message: str) -> None:
    error = await expect_error(api.list(CONFIG_MAPS, label_selector=selector), BadRequestError)
    assert error.status == failure_status(400, "BadRequest", message)


async def test_objects_can_be_selected_by_name_and_namespace(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(CONFIG_MAPS, config_map(name))
    assert await api.list_names(CONFIG_MAPS, field_selector="metadata.name=b") == ["b"]
    listed = await api.client.list(CONFIG_MAPS, field_selector=f"metadata.namespace={api.namespace},metadata.name!=kube-root-ca.crt")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]


async def test_pods_can_be_selected_by_node_and_phase(api: Api) -> None:
    await api.create(PODS, pod("bound", node="one"))
    await api.create(PODS, pod("pending"))
    await api.patch(PODS, "bound", {"status": {"phase": "Running"}}, subresource="status")
    assert await api.list_names(PODS, field_selector="spec.nodeName=one") == ["bound"]
    assert await api.list_names(PODS, field_selector="spec.nodeName=") == ["pending"]
    assert await api.list_names(PODS, field_selector="status.phase!=Running") == ["pending"]
    assert await api.list_names(PODS, field_selector="status.phase=Running,spec.nodeName=one") == ["bound"]


async def test_label_and_field_selectors_must_both_match(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(CONFIG_MAPS, config_map(name, labels={"x": "y"}))
    assert await api.list_names(CONFIG_MAPS, label_selector="x=y", field_selector="metadata.name=a") == ["a"]


async def test_an_unsupported_field_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.list(CONFIG_MAPS, field_selector="data.k=v"), BadRequestError)
    message = '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert error.status == failure_status(400, "BadRequest", message)


async def test_an_unsupported_field_of_a_custom_resource_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.list(WIDGETS, field_selector="spec.replicas=1"), BadRequestError)
    assert error.status == failure_status(400, "BadRequest", "field label not supported: spec.replicas")


async def test_an_invalid_field_selector_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.list(CONFIG_MAPS, field_selector="bogus"), BadRequestError)
    assert error.status == failure_status(400, "BadRequest", "invalid selector: 'bogus'; can't understand 'bogus'")
