"""The fault tests can fail: without its safeguards the operator does not pass them."""

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
from dlop.testing.virtual_time import run as run_on_virtual_time
from tests.sim.duplicate_creates import creates_with_delayed_watches, rejected_creates
from tests.sim.faults import StaleOperator, run_with_faults, stale_server_at_each_commit
from tests.sim.scenario_run import run_scenario
from tests.sim.scenarios import RING

pytestmark = pytest.mark.selftest

RemovePrecondition = Callable[[Request, JsonObject], None]


def remove_uid(request: Request, body: JsonObject) -> None:
    """Pods are deleted by name, whatever their uid."""
    if request.method == "DELETE" and "/pods/" in request.path:
        body.pop("preconditions", None)


def remove_resource_version(request: Request, body: JsonObject) -> None:
    """A status is written whatever the current version of the job."""
    if request.method == "PATCH" and request.path.endswith("/status") and "/ringjobs/" in request.path:
        body["metadata"].pop("resourceVersion")


@pytest.mark.parametrize("remove_precondition", [remove_uid, remove_resource_version])
def test_without_preconditions_an_operator_on_a_stale_server_fails(
    remove_precondition: RemovePrecondition, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = run_on_virtual_time(run_scenario(RING))
    _patch_requests(monkeypatch, remove_precondition)
    rival = StaleOperator(alone=False, syncs_last="ringjobs")
    assert run_with_faults(RING, reference, stale_server_at_each_commit(lambda _: rival)).failures != []


def test_an_operator_that_uses_a_record_newer_than_its_pod_cache_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordGate, "ready", lambda *_, **__: True)
    reference = run_on_virtual_time(run_scenario(RING))
    successor = StaleOperator(alone=True, syncs_last="pods")
    assert run_with_faults(RING, reference, stale_server_at_each_commit(lambda _: successor)).failures != []


def test_an_operator_that_does_not_wait_for_its_own_writes_repeats_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadYourWrites, "ready", lambda *_, **__: True)
    monkeypatch.setattr(Expectations, "satisfied", lambda *_: True)
    assert len(rejected_creates(run_on_virtual_time(creates_with_delayed_watches(plural="pods", seconds=5)))) > 0


def _patch_requests(monkeypatch: pytest.MonkeyPatch, remove_precondition: RemovePrecondition) -> None:
    handle = ApiServer.handle

    async def handle_patched(self: ApiServer, request: Request) -> Response | StreamResponse:
        if request.is_write and request.body:
            body: JsonObject = msgspec.json.decode(request.body)
            remove_precondition(request, body)
            request = _with_body(request, body)
        return await handle(self, request)

    monkeypatch.setattr(ApiServer, "handle", handle_patched)


def _with_body(request: Request, body: JsonObject) -> Request:
    return Request(request.method, request.path, request.query, request.headers, msgspec.json.encode(body))
