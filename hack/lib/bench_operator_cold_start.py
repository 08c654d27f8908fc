"""Thousands of running jobs on the embedded API server: memory of the operator, and a cold start.

One operator creates all pods and services, and its memory is measured. Then another operator starts, which has no writes to do.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from bench_operator_lifecycle import JobRunner
from bench_operator_load import IN_FLIGHT, BenchTarget
from bench_processes import run_server
from bench_report import Row, log_progress

from dlop.kube.client import Client, ClientLimits
from dlop.kube.http.transport import connect

_LIB = Path(__file__).parent
_PODS = 3


async def cold_start_rows(real: BenchTarget, *, jobs: int) -> list[Row]:
    """Uses HTTPS, with the server in a separate process."""
    with run_server([str(_LIB / "bench_embedded.py"), "tls"]) as (_, address):
        kubeconfig = real.folder / "embedded.kubeconfig"
        kubeconfig.write_text(json.dumps(json.loads(address)["kubeconfig"]))
        client = Client(await connect(kubeconfig), limits=ClientLimits(writes_in_flight=IN_FLIGHT))
        try:
            target = replace(real, client=client, kubeconfig=kubeconfig)
            await target.install()
            namespace = await target.create_namespace("cold-start")
            return [*await _create_jobs(target, jobs=jobs, namespace=namespace), *await _start_cold(target, jobs=jobs, namespace=namespace)]
        finally:
            await client.close()


async def _create_jobs(target: BenchTarget, *, jobs: int, namespace: str) -> list[Row]:
    log_progress(f"embedded server: {jobs} jobs of {_PODS} pods")
    runner = JobRunner(target, namespace)
    async with target.operator(namespace) as operator, runner.watcher:
        running = asyncio.create_task(runner.run_pods())
        await runner.start_jobs([f"job-{number}" for number in range(jobs)])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await operator.wait_quiet()
        current, peak = operator.resident_megabytes(), operator.resident_megabytes(peak=True)
    counted = f"{jobs:,} jobs, {runner.running_pods:,} running pods"
    return [
        Row(f"{counted}: memory of the operator that created them", current, "MB resident", at_most=130),
        Row(f"{counted}: peak memory of that operator", peak, "MB resident"),
    ]


async def _start_cold(target: BenchTarget, *, jobs: int, namespace: str) -> list[Row]:
    log_progress(f"embedded server: a cold start with {jobs} jobs and {_PODS * jobs} pods")
    async with target.operator(namespace) as operator:
        reconciled_after_seconds = await operator.wait_passes(jobs)
        cpu_seconds = operator.cpu_seconds
        samples = await operator.wait_quiet()
        megabytes = operator.resident_megabytes()
    counted = f"cold start with {jobs:,} jobs and {_PODS * jobs:,} pods"
    return [
        Row(f"{counted}: until synced", operator.ready_after_seconds, "s"),
        Row(f"{counted}: until each was reconciled ({samples.passes:,.0f} passes)", reconciled_after_seconds, "s"),
        Row(f"{counted}: CPU until then", cpu_seconds, "s of CPU"),
        Row(f"{counted}: writes", samples.writes, "writes", at_most=0),
        Row(f"{counted}: memory of the operator", megabytes, "MB resident", at_most=130),
    ]
