"""Random sequences of valid and invalid edits of jobs on the real API server; 500 sequences in a thorough run.

At the end each job equals a fresh job with the last spec, the operator is running, and it makes no more reconcile passes.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.kube.client import Client, ClientLimits
from dlop.kube.http.transport import connect
from tests.cluster.edit_runner import EditRunner, JobPair, start_edit_runner
from tests.cluster.edit_sequences import EditSequence, Outcome, draw_sequences
from tests.cluster.ring_jobs import operator_process, tail, wait_until_synced
from tests.thorough import THOROUGH

SEQUENCES = 500 if THOROUGH else 60
CONCURRENCY = 50
TIMEOUT_SECONDS = 180
SEQUENCE_TIMEOUT_SECONDS = 60
IDLE_SECONDS = 3.0


@pytest.mark.timeout(2 * TIMEOUT_SECONDS)
def test_after_any_sequence_of_edits_a_job_equals_a_fresh_job_with_the_last_spec(real_cluster: RealCluster, tmp_path: Path) -> None:
    sequences = _interleave(draw_sequences(3 * SEQUENCES))[:SEQUENCES]
    assert len(sequences) == SEQUENCES
    _require_variety(sequences)
    log = tmp_path / "operator.log"
    asyncio.run(_run_sequences(sequences, real_cluster, log))
    assert "reconcile failed" not in log.read_text(), tail(log)


def _interleave(sequences: list[EditSequence]) -> list[EditSequence]:
    """Reorder the sequences so that the first ones cover all kinds, and pods that are rejected, which are rare."""
    counts: Counter[tuple[str, bool]] = Counter()
    rounds = []
    for sequence in sequences:
        group = sequence.kind.name, any(step.outcome is Outcome.POD_REJECTED for step in sequence.steps)
        rounds.append(counts[group])
        counts[group] += 1
    return [sequence for _, sequence in sorted(zip(rounds, sequences, strict=True), key=lambda item: item[0])]


def _require_variety(sequences: list[EditSequence]) -> None:
    """All outcomes and kinds must occur."""
    outcomes = Counter(step.outcome for sequence in sequences for step in sequence.steps)
    assert all(outcomes[outcome] >= SEQUENCES // 50 for outcome in Outcome), outcomes
    assert SEQUENCES // 10 < sum(sequence.pods_run for sequence in sequences) < SEQUENCES * 3 // 4
    assert min(Counter(sequence.kind.name for sequence in sequences).values()) >= SEQUENCES // 50


async def _run_sequences(sequences: list[EditSequence], cluster: RealCluster, log: Path) -> None:
    client = Client(await connect(cluster.kubeconfig_path), limits=ClientLimits(writes_in_flight=CONCURRENCY))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), start_edit_runner(client) as runner:
            flags = ("--framework", "tests.cluster.edited_kinds:CrewJob,tests.cluster.edited_kinds:FreeCrewJob", "--log-format", "json")
            options = ("--namespaces", ",".join(runner.namespaces.all()), "--bind-address", "127.0.0.1:0", "--leader-election=false")
            async with operator_process(cluster, log, *flags, *options) as process:
                await wait_until_synced(log)
                pairs = await _run(runner, sequences)
                await _wait_idle(log)
                assert not [pair.name for pair in pairs if runner.compare(pair)], "equal jobs have diverged"
                assert process.returncode is None, tail(log)
    finally:
        await client.close()


async def _run(runner: EditRunner, sequences: list[EditSequence]) -> list[JobPair]:
    """Run all sequences, and return those whose jobs still exist. Jobs whose pods are rejected are deleted, because they never settle."""
    slots = asyncio.Semaphore(CONCURRENCY)

    async def run(pair: JobPair) -> list[str]:
        async with slots:
            return await _run_one(runner, pair)

    pairs = [runner.pair(sequence, number) for number, sequence in enumerate(sequences)]
    results = await asyncio.gather(*(run(pair) for pair in pairs))
    failures = [f"{pair.name}, {pair.sequence}\n" + "\n".join(lines) for pair, lines in zip(pairs, results, strict=True) if lines]
    assert len(results) == SEQUENCES
    assert not failures, f"{len(failures)} sequences failed:\n\n" + "\n\n".join(failures[:10])
    rejected = [pair for pair in pairs if runner.has_rejected_pods(pair)]
    await asyncio.gather(*map(runner.delete, rejected))
    return [pair for pair in pairs if pair not in rejected]


async def _run_one(runner: EditRunner, pair: JobPair) -> list[str]:
    """The differences that remain after the timeout; empty if the jobs became equal."""
    try:
        async with asyncio.timeout(SEQUENCE_TIMEOUT_SECONDS):
            await runner.run_edits(pair)
            await runner.until(pair, lambda: not runner.compare(pair))
    except AssertionError as error:
        return [str(error)]
    except TimeoutError:
        return runner.compare(pair) or ["the jobs became equal after the timeout"]
    return []


async def _wait_idle(log: Path) -> None:
    """Wait for a period without reconcile passes."""
    while True:
        before = await asyncio.to_thread(_passes, log)
        await asyncio.sleep(IDLE_SECONDS)
        if await asyncio.to_thread(_passes, log) == before:
            return


def _passes(log: Path) -> float:
    """The number of reconcile passes. Fails if the operator does not respond."""
    with urllib.request.urlopen(f"{_address(log)}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("controller_runtime_reconcile_total{"))


def _address(log: Path) -> str:
    """The URL of the metrics endpoint, from the log."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return next(f"http://{line['host']}:{line['port']}" for line in lines if line["msg"] == "serving health probes and metrics")
