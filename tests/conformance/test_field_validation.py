"""Fields that a type does not have: refused, warned about or dropped, as the caller wishes."""

from __future__ import annotations

from dlop.kube.errors import BadRequestError, InvalidError
from dlop.kube.resources import CONFIG_MAPS, PODS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused


async def warnings(api: Api, resource: Resource, body: JsonObject, *, validation: str) -> str:
    query = (("fieldValidation", validation),)
    answer = await api.client.call("POST", api.path(resource), query=query, body=body)
    return answer.headers.get("warning", "")


async def test_an_unknown_field_is_refused_when_strict(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, config_map("a") | {"bogus": 1}, field_validation="Strict"), BadRequestError)
    message = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bogus"'
    assert error.status == failure(400, "BadRequest", message)
    assert await api.find(CONFIG_MAPS, "a") is None


async def test_an_unknown_field_deep_inside_is_named_by_its_path(api: Api) -> None:
    body = pod("a", spec={"containers": [{"name": "main", "image": "x", "bogus": 1}], "nope": {}})
    error = await refused(api.create(PODS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: unknown field "spec.containers[0].bogus", unknown field "spec.nope"')


async def test_an_unknown_field_is_dropped_with_a_warning(api: Api) -> None:
    heard = await warnings(api, CONFIG_MAPS, config_map("a") | {"bogus": 1}, validation="Warn")
    assert heard == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in await api.get(CONFIG_MAPS, "a")


async def test_an_unknown_field_is_dropped_in_silence(api: Api) -> None:
    assert await warnings(api, CONFIG_MAPS, config_map("a") | {"bogus": 1}, validation="Ignore") == ""
    assert "bogus" not in await api.get(CONFIG_MAPS, "a")


async def test_whoever_does_not_say_is_warned(api: Api) -> None:
    answer = await api.client.call("POST", api.path(CONFIG_MAPS), body=config_map("a") | {"bogus": 1})
    assert answer.headers["warning"] == '299 - "unknown field \\"bogus\\""'


async def test_an_unknown_field_of_a_custom_object_is_refused_when_strict(api: Api) -> None:
    error = await refused(api.create(WIDGETS, widget("a", bogus=1), field_validation="Strict"), BadRequestError)
    message = 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "bogus"'
    assert error.status == failure(400, "BadRequest", message)


async def test_an_unknown_field_of_metadata_is_refused_when_strict(api: Api) -> None:
    body = widget("a")
    body["metadata"]["bogus"] = 1
    error = await refused(api.create(WIDGETS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: unknown field "metadata.bogus"')


async def test_an_unknown_field_of_a_custom_object_is_dropped_with_a_warning(api: Api) -> None:
    assert await warnings(api, WIDGETS, widget("a", bogus=1), validation="Warn") == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in await api.get(WIDGETS, "a")


async def test_a_patch_that_adds_an_unknown_field_is_refused_when_strict(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    error = await refused(api.patch(WIDGETS, "a", {"bogus": 1}, field_validation="Strict"), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["patch"]
    assert str(error).endswith('strict decoding error: unknown field "bogus"')
    assert await api.get(WIDGETS, "a") == created


async def test_a_field_given_twice_is_refused_when_strict(api: Api) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    error = await refused(api.create(CONFIG_MAPS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: duplicate field "data.k"')


async def test_the_way_of_validation_must_be_known(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, config_map("a"), field_validation="Nonsense"), InvalidError)
    message = 'Unsupported value: "Nonsense": supported values: "", "Ignore", "Strict", "Warn"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "fieldValidation"}]
