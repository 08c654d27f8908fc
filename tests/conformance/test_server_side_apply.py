"""Server-side apply, which the embedded server does not support."""

from __future__ import annotations

from dlop.kube.errors import UnsupportedMediaTypeError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, only_on

APPLY = "application/apply-patch+yaml"


@only_on("in-process", "embedded", reason="the real server supports server-side apply, the embedded one does not")
async def test_server_side_apply_is_an_unsupported_media_type(api: Api) -> None:
    for resource, body in ((CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))):
        patch = api.client.call("PATCH", api.path(resource, "a"), query=(("fieldManager", "dlop"),), body=body, content_type=APPLY)
        error = await expect_error(patch, UnsupportedMediaTypeError)
        assert (error.status_code, error.status_reason) == (415, "UnsupportedMediaType")
        assert APPLY not in str(error)
        assert await api.get_or_none(resource, "a") is None
