"""The fault tests notice what they are there to notice: without its precautions the operator does not pass them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dlop.controller.record_gate import RecordGate
from dlop.embedded.apiserver.server import ApiServer
from dlop.kube.expectations import Expectations
from dlop.kube.read_your_writes import ReadYourWrites
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import run as run_virtually
from tests.sim.faults import Latecomer, explored, stuck_at_each_commit
from tests.sim.stories import RING
from tests.sim.telling import live
from tests.sim.wasting import creates_while_blind, wasted

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
    reference = run_virtually(live(RING))
    _make_careless(monkeypatch, forget)
    rival = Latecomer(alone=False, sees_last="ringjobs")
    assert explored(RING, reference, stuck_at_each_commit(lambda _: rival)).problems != []


def test_an_operator_that_believes_a_status_newer_than_its_pods_does_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordGate, "ready", lambda *_, **__: True)
    reference = run_virtually(live(RING))
    successor = Latecomer(alone=True, sees_last="pods")
    assert explored(RING, reference, stuck_at_each_commit(lambda _: successor)).problems != []


def test_an_operator_that_does_not_wait_for_its_own_writes_to_show_wastes_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadYourWrites, "ready", lambda *_, **__: True)
    monkeypatch.setattr(Expectations, "are_met", lambda *_: True)
    assert len(wasted(run_virtually(creates_while_blind(plural="pods", seconds=5)))) > 0


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
