"""Field validation of unknown and duplicate fields: Strict, Warn and Ignore."""

from __future__ import annotations

from dlop.kube.errors import BadRequestError, InvalidError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status, over_https

pytestmark = over_https(reason="warnings are response headers")


async def test_strict_validation_rejects_an_unknown_field(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a") | {"bogus": 1}, field_validation="Strict"), BadRequestError)
    message = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "bogus"'
    assert error.status == failure_status(400, "BadRequest", message)
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_an_unknown_nested_field_is_reported_with_its_path(api: Api) -> None:
    body = pod("a", spec={"containers": [{"name": "main", "image": "x", "bogus": 1}], "nope": {}})
    error = await expect_error(api.create(PODS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: unknown field "spec.containers[0].bogus", unknown field "spec.nope"')


async def test_warn_validation_drops_an_unknown_field_with_a_warning(api: Api) -> None:
    warning = await api.create_with_warnings(CONFIG_MAPS, config_map("a") | {"bogus": 1}, field_validation="Warn")
    assert warning == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in await api.get(CONFIG_MAPS, "a")


async def test_ignore_validation_drops_an_unknown_field_without_a_warning(api: Api) -> None:
    assert await api.create_with_warnings(CONFIG_MAPS, config_map("a") | {"bogus": 1}, field_validation="Ignore") == ""
    assert "bogus" not in await api.get(CONFIG_MAPS, "a")


async def test_the_default_validation_is_warn(api: Api) -> None:
    assert await api.create_with_warnings(CONFIG_MAPS, config_map("a") | {"bogus": 1}) == '299 - "unknown field \\"bogus\\""'


async def test_strict_validation_rejects_an_unknown_field_of_a_custom_object(api: Api) -> None:
    error = await expect_error(api.create(WIDGETS, widget("a", bogus=1), field_validation="Strict"), BadRequestError)
    message = 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "bogus"'
    assert error.status == failure_status(400, "BadRequest", message)


async def test_strict_validation_rejects_an_unknown_metadata_field(api: Api) -> None:
    body = widget("a")
    body["metadata"]["bogus"] = 1
    error = await expect_error(api.create(WIDGETS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: unknown field "metadata.bogus"')


async def test_warn_validation_drops_an_unknown_field_of_a_custom_object_with_a_warning(api: Api) -> None:
    assert await api.create_with_warnings(WIDGETS, widget("a", bogus=1), field_validation="Warn") == '299 - "unknown field \\"bogus\\""'
    assert "bogus" not in await api.get(WIDGETS, "a")


async def test_strict_validation_rejects_a_patch_that_adds_an_unknown_field(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.patch(WIDGETS, "a", {"bogus": 1}, field_validation="Strict"), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["patch"]
    assert str(error).endswith('strict decoding error: unknown field "bogus"')
    assert await api.get(WIDGETS, "a") == created


async def test_strict_validation_rejects_a_duplicate_field(api: Api) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}'
    error = await expect_error(api.create(CONFIG_MAPS, body, field_validation="Strict"), BadRequestError)
    assert str(error).endswith('strict decoding error: duplicate field "data.k"')


async def test_an_unknown_field_validation_mode_is_invalid(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a"), field_validation="Nonsense"), InvalidError)
    message = 'Unsupported value: "Nonsense": supported values: "", "Ignore", "Strict", "Warn"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "fieldValidation"}]
