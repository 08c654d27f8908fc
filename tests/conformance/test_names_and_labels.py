"""Validation of names, labels and annotations."""

from __future__ import annotations

import pytest

from dlop.kube.errors import BadRequestError, InvalidError
from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, pod, service
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error
from tests.kubernetes_versions import LIMITS_IN_BYTES, since

LABEL_MESSAGES = since("1.35", reason="the messages of invalid labels are more precise")

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize("name", ["UPPER", "under_score", "-dash", "dash-", "a..b", "slash/ed", "spa ce", "ümlaut"])
async def test_an_invalid_config_map_name_is_rejected(api: Api, name: str) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map(name)), InvalidError)
    message = f'Invalid value: "{name}": {SUBDOMAIN}'
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.name"}]
    assert str(error) == f'ConfigMap "{name}" is invalid: metadata.name: {message}'


@pytest.mark.parametrize("name", ["a", "1", "dots.and-dashes", "x" * 253])
async def test_a_valid_config_map_name_is_accepted(api: Api, name: str) -> None:
    assert (await api.create(CONFIG_MAPS, config_map(name)))["metadata"]["name"] == name


async def test_a_name_that_is_too_long_is_rejected(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("x" * 254)), InvalidError)
    assert error.causes[0]["message"].endswith("must be no more than 253 characters")


@pytest.mark.parametrize(("resource", "body"), [(PODS, pod("Bad_Name")), (WIDGETS, widget("Bad_Name"))])
async def test_names_of_pods_and_custom_objects_must_be_dns_subdomains(api: Api, resource: Resource, body: JsonObject) -> None:
    error = await expect_error(api.create(resource, body), InvalidError)
    assert [(cause["field"], cause["message"]) for cause in error.causes] == [("metadata.name", f'Invalid value: "Bad_Name": {SUBDOMAIN}')]


async def test_the_name_of_a_namespace_cannot_contain_dots(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "with.dots"}}
    error = await expect_error(api.create(NAMESPACES, body), InvalidError)
    assert error.causes[0]["message"].startswith('Invalid value: "with.dots": ')
    assert error.causes[0]["field"] == "metadata.name"


async def test_the_name_of_a_service_must_be_a_dns_label(api: Api) -> None:
    error = await expect_error(api.create(SERVICES, service("with.dots")), InvalidError)
    assert error.causes[0]["field"] == "metadata.name"


@pytest.mark.parametrize(
    ("labels", "value", "detail"),
    [
        ({"bad key": "x"}, "bad key", "name part must consist of alphanumeric characters"),
        ({"key": "bad value"}, "bad value", "a valid label must be an empty string or consist of alphanumeric characters"),
        pytest.param({"a/b/c": "x"}, "a/b/c", "a valid label key must consist of alphanumeric characters", marks=LABEL_MESSAGES),
        ({"Upper.Case/x": "y"}, "Upper.Case/x", "prefix part a lowercase RFC 1123 subdomain must consist of"),
        pytest.param({"k" * 64: "x"}, "k" * 64, "name part must be no more than 63 bytes", marks=LABEL_MESSAGES),
        pytest.param({"key": "v" * 64}, "v" * 64, "must be no more than 63 bytes", marks=LABEL_MESSAGES),
    ],
)
async def test_an_invalid_label_is_rejected(api: Api, labels: dict[str, str], value: str, detail: str) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a", labels=labels)), InvalidError)
    assert [(cause["reason"], cause["field"]) for cause in error.causes] == [("FieldValueInvalid", "metadata.labels")]
    assert error.causes[0]["message"].startswith(f'Invalid value: "{value}": {detail}')


async def test_an_annotation_needs_a_valid_key_and_can_have_any_value(api: Api) -> None:
    annotations = {"example.org/note": "any text, even {json}\nand lines"}
    created = await api.create(CONFIG_MAPS, config_map("a", annotations=annotations))
    assert created["metadata"]["annotations"] == annotations
    error = await expect_error(api.create(CONFIG_MAPS, config_map("b", annotations={"bad key": "x"})), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["metadata.annotations"]


@LIMITS_IN_BYTES
async def test_the_total_size_of_annotations_is_limited(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a", annotations={"k": "x" * (256 * 1024 + 1)})), InvalidError)
    message = "Too long: may not be more than 262144 bytes"
    assert error.causes == [{"reason": "FieldValueTooLong", "message": message, "field": "metadata.annotations"}]


async def test_a_label_that_is_not_a_string_is_a_bad_request(api: Api) -> None:
    body = config_map("a") | {"metadata": {"name": "a", "labels": {"count": 5}}}
    error = await expect_error(api.create(CONFIG_MAPS, body), BadRequestError)
    assert "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string" in str(error)


async def test_all_metadata_errors_are_reported(api: Api) -> None:
    body = config_map("Bad", labels={"bad key": "x"}, annotations={"bad key": "y"})
    error = await expect_error(api.create(CONFIG_MAPS, body), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["metadata.name", "metadata.labels", "metadata.annotations"]
    assert str(error).startswith('ConfigMap "Bad" is invalid: [metadata.name: ')


async def test_the_name_of_an_object_is_immutable(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    call = api.client.replace(CONFIG_MAPS, "a", config_map("b"), namespace=api.namespace)
    error = await expect_error(call, BadRequestError)
    assert str(error) == "the name of the object (b) does not match the name on the URL (a)"
