"""Thousands of running jobs on the embedded API server: the operator's memory, and a cold start among them.

An operator makes all pods and services and sees them run; its memory is read. Then another one is started, for which
there is nothing left to do.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from bench_operator_life import Lives
from bench_operator_load import IN_FLIGHT, Place
from bench_processes import serving
from bench_rows import Row, say

from dlop.kube.client import Client, Limits
from dlop.kube.http.transport import connect

_LIB = Path(__file__).parent
_PODS = 3


async def many_rows(elsewhere: Place, *, jobs: int) -> list[Row]:
    """Everything over HTTPS, with the server in a process of its own."""
    with serving([str(_LIB / "bench_embedded.py"), "tls"]) as (_, said):
        kubeconfig = elsewhere.folder / "embedded.kubeconfig"
        kubeconfig.write_text(json.dumps(json.loads(said)["kubeconfig"]))
        client = Client(await connect(kubeconfig), limits=Limits(writes_in_flight=IN_FLIGHT))
        try:
            place = replace(elsewhere, client=client, kubeconfig=kubeconfig)
            await place.install()
            namespace = await place.make_namespace("many")
            return [*await _grow(place, jobs=jobs, namespace=namespace), *await _start_cold(place, jobs=jobs, namespace=namespace)]
        finally:
            await client.close()


async def _grow(place: Place, *, jobs: int, namespace: str) -> list[Row]:
    say(f"embedded server: {jobs} jobs of {_PODS} pods are made and run")
    lives = Lives(place, namespace)
    async with place.operator(namespace) as operator, lives.follower:
        running = asyncio.create_task(lives.run_pods())
        await lives.begin([f"job-{number}" for number in range(jobs)])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await operator.wait_quiet()
        now, peak = operator.resident_megabytes(), operator.resident_megabytes(peak=True)
    counted = f"{jobs:,} jobs, {lives.running_pods:,} running pods"
    return [
        Row(f"{counted}: memory of the operator that made them", now, "MB resident", at_most=130),
        Row(f"{counted}: the most that it has ever had", peak, "MB resident"),
    ]


async def _start_cold(place: Place, *, jobs: int, namespace: str) -> list[Row]:
    say(f"embedded server: a cold start with {jobs} jobs and {_PODS * jobs} pods")
    async with place.operator(namespace) as operator:
        seen_after_seconds = await operator.wait_passes(jobs)
        cpu_seconds = operator.cpu_seconds
        samples = await operator.wait_quiet()
        megabytes = operator.resident_megabytes()
    counted = f"cold start with {jobs:,} jobs and {_PODS * jobs:,} pods"
    return [
        Row(f"{counted}: until synced", operator.ready_after_seconds, "s"),
        Row(f"{counted}: until each was looked at ({samples.passes:,.0f} passes)", seen_after_seconds, "s"),
        Row(f"{counted}: CPU for that", cpu_seconds, "s of CPU"),
        Row(f"{counted}: writes", samples.writes, "writes", at_most=0),
        Row(f"{counted}: memory of the operator", megabytes, "MB resident", at_most=130),
    ]
