"""Input that makes no sense: the server says so, in the right words, and lives on."""

from __future__ import annotations

import pytest

from dlop.kube.errors import UnauthorizedError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.transport import Request
from tests.conformance.bodies import config_map
from tests.conformance.definitions import WIDGETS
from tests.conformance.support import Api, decoded, failure, only_on, refused

JSON = {"content-type": "application/json", "accept": "application/json"}


async def alive(api: Api) -> bool:
    name = (await api.create(CONFIG_MAPS, {"metadata": {"generateName": "alive-"}}))["metadata"]["name"]
    return name in await api.names(CONFIG_MAPS)


@pytest.mark.parametrize(
    "body", [b"{", b"", b"nonsense", b"\xff\xfe\x00", b'{"a":', b"[" * 20_000, b'{"metadata":{"name":"a"},}', b"null,"]
)
async def test_a_body_that_is_no_json_is_a_bad_request(api: Api, body: bytes) -> None:
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (answer.status, decoded(answer)["reason"], decoded(answer)["status"]) == (400, "BadRequest", "Failure")
    assert decoded(answer)["message"].startswith(
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
    )
    assert await alive(api)


async def test_a_body_that_is_a_list_is_a_bad_request(api: Api) -> None:
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=b"[]")
    assert (answer.status, decoded(answer)["reason"]) == (400, "BadRequest")


async def test_a_custom_body_without_a_kind_is_a_bad_request(api: Api) -> None:
    answer = await api.raw("POST", api.path(WIDGETS), headers=JSON, body=b"{}")
    message = "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})"
    assert (answer.status, decoded(answer)) == (400, failure(400, "BadRequest", message))


async def test_a_body_of_another_kind_is_a_bad_request(api: Api) -> None:
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}'
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (answer.status, decoded(answer)["reason"]) == (400, "BadRequest")
    assert decoded(answer)["message"].startswith('Pod in version "v1" cannot be handled as a ConfigMap: ')


async def test_a_custom_body_of_another_version_is_a_bad_request(api: Api) -> None:
    body = b'{"apiVersion":"conformance.dlop.dev/v2","kind":"Widget","metadata":{"name":"a"}}'
    answer = await api.raw("POST", api.path(WIDGETS), headers=JSON, body=body)
    message = "the API version in the data (conformance.dlop.dev/v2) does not match the expected API version (conformance.dlop.dev/v1)"
    assert decoded(answer) == failure(400, "BadRequest", message)


async def test_a_built_in_body_need_not_say_its_kind(api: Api) -> None:
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=b'{"metadata":{"name":"a"}}')
    assert (answer.status, decoded(answer)["kind"], decoded(answer)["apiVersion"]) == (201, "ConfigMap", "v1")


async def test_a_field_of_a_wrong_type_is_a_bad_request(api: Api) -> None:
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=b'{"metadata":{"name":"a"},"data":{"k":1}}')
    message = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    whole = f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {message}'
    assert decoded(answer) == failure(400, "BadRequest", whole)


async def test_a_body_of_a_wrong_content_type_is_not_supported(api: Api) -> None:
    headers = {"content-type": "text/plain", "accept": "application/json"}
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=headers, body=b'{"metadata":{"name":"a"}}')
    assert (answer.status, decoded(answer)["reason"]) == (415, "UnsupportedMediaType")
    assert decoded(answer)["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json"
    )
    assert await api.find(CONFIG_MAPS, "a") is None


async def test_a_patch_of_a_wrong_content_type_is_not_supported(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    headers = {"content-type": "application/json", "accept": "application/json"}
    answer = await api.raw("PATCH", api.path(CONFIG_MAPS, "a"), headers=headers, body=b"{}")
    assert (answer.status, decoded(answer)["reason"]) == (415, "UnsupportedMediaType")


async def test_a_content_type_may_have_parameters(api: Api) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=headers, body=b'{"metadata":{"name":"a"}}')
    assert answer.status == 201


async def test_a_yaml_body_is_understood(api: Api) -> None:
    headers = {"content-type": "application/yaml", "accept": "application/json"}
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=headers, body=b"metadata:\n  name: a\ndata:\n  k: v\n")
    assert (answer.status, decoded(answer)["data"]) == (201, {"k": "v"})


async def test_an_answer_that_cannot_be_given_is_not_acceptable(api: Api) -> None:
    answer = await api.raw("GET", api.path(WIDGETS), headers={"accept": "application/xml"})
    assert (answer.status, decoded(answer)["reason"]) == (406, "NotAcceptable")
    assert decoded(answer)["message"].startswith("only the following media types are accepted: application/json")


async def test_a_huge_body_is_too_large(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (3 * 1024 * 1024) + b'"}}'
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (answer.status, decoded(answer)["reason"]) == (413, "RequestEntityTooLarge")
    assert decoded(answer)["message"] == "Request entity too large: limit is 3145728"
    assert await alive(api)


async def test_a_config_map_that_is_too_large_is_invalid(api: Api) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (1024 * 1024 + 1) + b'"}}'
    answer = await api.raw("POST", api.path(CONFIG_MAPS), headers=JSON, body=body)
    assert (answer.status, decoded(answer)["reason"]) == (422, "Invalid")
    assert decoded(answer)["details"]["causes"][0]["message"].startswith("Too long: may not be more than 1048576 bytes")


async def test_a_verb_that_a_resource_does_not_have_is_not_allowed(api: Api) -> None:
    answer = await api.raw("PUT", api.path(CONFIG_MAPS), headers=JSON, body=b"{}")
    assert (answer.status, decoded(answer)["reason"]) == (405, "MethodNotAllowed")


async def test_a_create_at_the_address_of_an_object_is_not_allowed(api: Api) -> None:
    answer = await api.raw("POST", api.path(LEASES, "a"), headers=JSON, body=b"{}")
    assert (answer.status, decoded(answer)["reason"]) == (405, "MethodNotAllowed")


async def test_a_resource_that_is_not_there_is_not_found(api: Api) -> None:
    answer = await api.raw("GET", f"/api/v1/namespaces/{api.namespace}/nonsense", headers={"accept": "application/json"})
    message = "the server could not find the requested resource"
    assert (answer.status, decoded(answer)) == (404, failure(404, "NotFound", message, {}))


@pytest.mark.parametrize("path", ["/nonsense", "/apis/nonsense.example.org/v1/things", "/apis/nonsense.example.org"])
async def test_a_page_that_is_not_there_is_not_found(api: Api, path: str) -> None:
    answer = await api.raw("GET", path, headers={"accept": "application/json"})
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


@only_on("embedded", "real", because="a client in the server's own process has no token")
async def test_a_wrong_token_is_unauthorized(api: Api) -> None:
    assert api.server.stranger is not None
    request = Request("GET", api.path(CONFIG_MAPS), headers={"accept": "application/json"})
    answer = await api.server.stranger.transport.send(request, timeout_seconds=10.0)
    assert (answer.status, decoded(answer)) == (401, failure(401, "Unauthorized", "Unauthorized"))
    await refused(api.server.stranger.list(CONFIG_MAPS), UnauthorizedError)
    assert await alive(api)
