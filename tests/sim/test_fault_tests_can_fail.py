"""The fault tests notice what they are there to notice: without its preconditions the operator does not pass them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dlop.kube.errors import JsonObject
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.local.apiserver.server import ApiServer
from dlop.testing.virtual_time import run as run_virtually
from tests.sim.reference import Run, live
from tests.sim.test_faults import stuck

Forget = Callable[[Request, JsonObject], None]


def forget_uids(request: Request, body: JsonObject) -> None:
    """A pod is deleted by its name, whichever pod that is by now."""
    if request.method == "DELETE" and "/pods/" in request.path:
        body.pop("preconditions", None)


def forget_versions(request: Request, body: JsonObject) -> None:
    """A status is written over whatever is there by now."""
    if request.method == "PATCH" and request.path.endswith("/status") and "/ringjobs/" in request.path:
        body["metadata"].pop("resourceVersion")


@pytest.mark.parametrize("forget", [forget_uids, forget_versions])
def test_an_operator_without_preconditions_does_harm_from_a_stuck_server(forget: Forget, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = run_virtually(live())
    _make_careless(monkeypatch, forget)
    assert any(_does_harm(version, reference) for version in reference.versions)


def _does_harm(version: int, reference: Run) -> bool:
    run = run_virtually(live(stuck(version, first_lives_on=True)))
    return bool(run.violations) or run.pictures != reference.pictures or run.counts != reference.counts


def _make_careless(monkeypatch: pytest.MonkeyPatch, forget: Forget) -> None:
    handle = ApiServer.handle

    async def careless(self: ApiServer, request: Request) -> Response | StreamResponse:
        if request.is_write and request.body:
            body: JsonObject = msgspec.json.decode(request.body)
            forget(request, body)
            request = _with_body(request, body)
        return await handle(self, request)

    monkeypatch.setattr(ApiServer, "handle", careless)


def _with_body(request: Request, body: JsonObject) -> Request:
    return Request(request.method, request.path, request.query, request.headers, msgspec.json.encode(body))
