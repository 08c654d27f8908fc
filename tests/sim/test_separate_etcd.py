"""Pods are in another etcd than jobs, so that their resource versions cannot be compared."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import RING_JOBS, RecordingTransport, operator_env, ring, settle

_OFFSET = 1_000_000
_VERSION = re.compile(rb'("resourceVersion":")(\d+)')


class SeparateEtcd(RecordingTransport):
    """The resource versions of jobs are higher than those of all other objects."""

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        if RING_JOBS.plural not in request.path:
            return await super().send(request, timeout_seconds=timeout_seconds)
        response = await super().send(_stored(request), timeout_seconds=timeout_seconds)
        return Response(response.status, response.headers, _shift(response.body, _OFFSET))

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        is_for_jobs = RING_JOBS.plural in request.path
        stored = _stored(request) if is_for_jobs else request
        async with super().stream(stored, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield StreamResponse(response.status, response.headers, _shift_lines(response.chunks)) if is_for_jobs else response


def _stored(request: Request) -> Request:
    """The request with the resource versions of the server."""
    query = tuple(
        (name, str(int(value) - _OFFSET) if name == "resourceVersion" and int(value) > _OFFSET else value) for name, value in request.query
    )
    return replace(request, query=query, body=None if request.body is None else _shift(request.body, -_OFFSET))


def _shift(text: bytes, offset: int) -> bytes:
    return _VERSION.sub(lambda match: match[1] + b"%d" % (int(match[2]) + offset), text)


async def _shift_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _shift(line, _OFFSET) + b"\n"


@pytest.mark.parametrize("takes_over", [False, True], ids=["same operator", "new operator"])
def test_an_operator_reacts_at_once_if_jobs_have_higher_versions_than_pods(takes_over: bool) -> None:
    @virtual_time
    async def check() -> None:
        async with operator_env() as env:
            transport = SeparateEtcd(env.cluster.transport())
            async with env.run_operator(transport=transport):
                await env.submit(ring())
                await settle(1)
                await env.set_pod_phases("Running")
                await settle(1)
                if not takes_over:
                    await env.set_pod_phases("Succeeded")
                    await settle(1)
            if takes_over:
                async with env.run_operator(identity="two", transport=transport):
                    await env.set_pod_phases("Succeeded")
                    await settle(1)
            assert "Succeeded" in await env.conditions()

    check()
