"""Server-side apply."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import UnsupportedMediaTypeError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, only_on, refused


@only_on("in-process", "embedded", because="the embedded server does not have server-side apply, and says so; the real one has it")
async def test_apply_is_refused_as_a_server_without_it_does(api: Api) -> None:
    for resource, body in ((CONFIG_MAPS, config_map("a")), (WIDGETS, widget("a"))):
        error = await refused(api.patch(resource, "a", body, patch_type=PatchType.APPLY), UnsupportedMediaTypeError)
        assert (error.status_code, error.status_reason) == (415, "UnsupportedMediaType")
        assert "application/apply-patch+yaml" not in str(error)
        assert await api.find(resource, "a") is None


@only_on("real", because="the embedded server does not have server-side apply; this keeps the client's side of it honest")
async def test_apply_creates_and_then_changes(api: Api) -> None:
    first = await api.patch(CONFIG_MAPS, "a", config_map("a", {"k": "v", "other": "1"}), patch_type=PatchType.APPLY)
    second = await api.patch(CONFIG_MAPS, "a", config_map("a", {"k": "w"}), patch_type=PatchType.APPLY, force=True)
    assert first["data"] == {"k": "v", "other": "1"}
    assert second["data"] == {"k": "w"}
