"""Malformed requests. The server rejects them and keeps working."""

from __future__ import annotations

import pytest

from dlop.kube.errors import RequestTooLargeError, UnauthorizedError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.transport import Request
from tests.conformance.bodies import config_map
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, decode_json, expect_error, failure_status, only_on, over_https
from tests.kubernetes_versions import LIMITS_IN_BYTES

pytestmark = over_https(reason="the HTTP server parses bodies, paths and headers first")

JSON = {"content-type": "application/json", "accept": "application/json"}


@pytest.mark.parametrize(
    "body", [b"{", b"", b"nonsense", b"\xff\xfe\x00", b'{"a":', b"[" * 20_000, b'{"metadata":{"name":"a"},}', b"null,"]
)
async def test_a_body_that_is_not_json_is_a_bad_request(api: Api, body: bytes) -> None:
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (response.status, decode_json(response)["reason"], decode_json(response)["status"]) == (400, "BadRequest", "Failure")
    assert decode_json(response)["message"].startswith(
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
    )
    assert await api.is_responsive()


async def test_a_body_that_is_a_list_is_a_bad_request(api: Api) -> None:
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=b"[]")
    assert (response.status, decode_json(response)["reason"]) == (400, "BadRequest")


async def test_a_custom_body_without_a_kind_is_a_bad_request(api: Api) -> None:
    response = await api.send("POST", api.path(WIDGETS), headers=JSON, body=b"{}")
    message = "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})"
    assert (response.status, decode_json(response)) == (400, failure_status(400, "BadRequest", message))


async def test_a_body_of_another_kind_is_a_bad_request(api: Api) -> None:
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}'
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (response.status, decode_json(response)["reason"]) == (400, "BadRequest")
    assert decode_json(response)["message"].startswith('Pod in version "v1" cannot be handled as a ConfigMap: ')


async def test_a_custom_body_of_another_version_is_a_bad_request(api: Api) -> None:
    body = b'{"apiVersion":"conformance.dlop.dev/v2","kind":"Widget","metadata":{"name":"a"}}'
    response = await api.send("POST", api.path(WIDGETS), headers=JSON, body=body)
    message = "the API version in the data (conformance.dlop.dev/v2) does not match the expected API version (conformance.dlop.dev/v1)"
    assert decode_json(response) == failure_status(400, "BadRequest", message)


async def test_a_body_of_a_built_in_type_may_omit_its_kind(api: Api) -> None:
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=b'{"metadata":{"name":"a"}}')
    assert (response.status, decode_json(response)["kind"], decode_json(response)["apiVersion"]) == (201, "ConfigMap", "v1")


async def test_a_field_of_a_wrong_type_is_a_bad_request(api: Api) -> None:
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=b'{"metadata":{"name":"a"},"data":{"k":1}}')
    cause = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    message = f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {cause}'
    assert decode_json(response) == failure_status(400, "BadRequest", message)


async def test_a_body_of_a_wrong_content_type_is_not_supported(api: Api) -> None:
    headers = {"content-type": "text/plain", "accept": "application/json"}
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=headers, body=b'{"metadata":{"name":"a"}}')
    assert (response.status, decode_json(response)["reason"]) == (415, "UnsupportedMediaType")
    assert decode_json(response)["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json"
    )
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_a_patch_of_a_wrong_content_type_is_not_supported(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    headers = {"content-type": "application/json", "accept": "application/json"}
    response = await api.send("PATCH", api.path(CONFIG_MAPS, "a"), headers=headers, body=b"{}")
    assert (response.status, decode_json(response)["reason"]) == (415, "UnsupportedMediaType")


async def test_a_content_type_may_have_parameters(api: Api) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=headers, body=b'{"metadata":{"name":"a"}}')
    assert response.status == 201


async def test_a_yaml_body_is_accepted(api: Api) -> None:
    headers = {"content-type": "application/yaml", "accept": "application/json"}
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=headers, body=b"metadata:\n  name: a\ndata:\n  k: v\n")
    assert (response.status, decode_json(response)["data"]) == (201, {"k": "v"})


async def test_an_unsupported_accept_header_is_not_acceptable(api: Api) -> None:
    response = await api.send("GET", api.path(WIDGETS), headers={"accept": "application/xml"})
    assert (response.status, decode_json(response)["reason"]) == (406, "NotAcceptable")
    assert decode_json(response)["message"].startswith("only the following media types are accepted: application/json")


async def test_an_object_above_the_limit_of_etcd_is_too_large(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.patch(WIDGETS, "a", {"spec": {"note": "x" * 1_600_000}}), RequestTooLargeError)
    assert (error.status_code, str(error)) == (500, "etcdserver: request is too large")
    assert "note" not in (await api.get(WIDGETS, "a"))["spec"]


async def test_a_huge_body_is_too_large(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (3 * 1024 * 1024) + b'"}}'
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (response.status, decode_json(response)["reason"]) == (413, "RequestEntityTooLarge")
    assert decode_json(response)["message"] == "Request entity too large: limit is 3145728"
    assert await api.is_responsive()


@LIMITS_IN_BYTES
async def test_a_config_map_that_is_too_large_is_invalid(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (1024 * 1024 + 1) + b'"}}'
    response = await api.send("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (response.status, decode_json(response)["reason"]) == (422, "Invalid")
    assert decode_json(response)["details"]["causes"][0]["message"].startswith("Too long: may not be more than 1048576 bytes")


async def test_an_unsupported_method_is_not_allowed(api: Api) -> None:
    response = await api.send("PUT", api.path(CONFIG_MAPS), headers=JSON, body=b"{}")
    assert (response.status, decode_json(response)["reason"]) == (405, "MethodNotAllowed")


async def test_a_post_to_the_path_of_an_object_is_not_allowed(api: Api) -> None:
    response = await api.send("POST", api.path(LEASES, "a"), headers=JSON, body=b"{}")
    assert (response.status, decode_json(response)["reason"]) == (405, "MethodNotAllowed")


async def test_an_unknown_resource_is_not_found(api: Api) -> None:
    response = await api.send("GET", f"/api/v1/namespaces/{api.namespace}/nonsense", headers={"accept": "application/json"})
    message = "the server could not find the requested resource"
    assert (response.status, decode_json(response)) == (404, failure_status(404, "NotFound", message, {}))


@pytest.mark.parametrize("path", ["/nonsense", "/apis/nonsense.example.org/v1/things", "/apis/nonsense.example.org"])
async def test_an_unknown_path_is_not_found(api: Api, path: str) -> None:
    response = await api.send("GET", path, headers={"accept": "application/json"})
    assert (response.status, response.body) == (404, b"404 page not found\n")


@only_on("embedded", "real", reason="an in-process client has no token")
async def test_an_unknown_token_is_unauthorized(api: Api) -> None:
    assert api.server.unauthorized_client is not None
    request = Request("GET", api.path(CONFIG_MAPS), headers={"accept": "application/json"})
    response = await api.server.unauthorized_client.transport.send(request, timeout_seconds=10.0)
    assert (response.status, decode_json(response)) == (401, failure_status(401, "Unauthorized", "Unauthorized"))
    await expect_error(api.server.unauthorized_client.list(CONFIG_MAPS), UnauthorizedError)
    assert await api.is_responsive()
