"""A cluster with an operator and scripted pods, and the commands of `dlop` against it, as a user calls them."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType
from dlop.cli.main import main
from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.mpba.mxjob import MXJob as MpbaMXJob
from dlop.frameworks.mpba.tfjob import TFJob as MpbaTFJob
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit


class CrewJob(DLJob):
    """A chief and its workers, in the common dialect."""

    job_type = JobType("crew.dlop.dev", "v1", "CrewJob", short_names=("crew",))
    replica_types = (ReplicaType("Chief", maximum=1), ReplicaType("Worker"))
    container_properties = ContainerProperties("main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


KINDS = (CrewJob, FioravanzoMXJob, MpbaMXJob, MpbaTFJob)
ROOT = Path(__file__).resolve().parents[2]
FRAMEWORK = ("--framework", "tests.sim.job_world:CrewJob")


def template(name: str = "main") -> JsonObject:
    return {"spec": {"containers": [{"name": name, "image": "any"}]}}


def crew(
    name: str, *, namespace: str | None = None, policy: JsonObject | None = None, restart: str = "Never", workers: int = 2
) -> JsonObject:
    """A job in the common dialect."""
    roles = {
        "Chief": {"replicas": 1, "restartPolicy": restart, "template": template()},
        "Worker": {"replicas": workers, "restartPolicy": restart, "template": template()},
    }
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    spec = {"replicaSpecs": roles} | ({"runPolicy": policy} if policy else {})
    return {"apiVersion": "crew.dlop.dev/v1", "kind": "CrewJob", "metadata": metadata, "spec": spec}


def mxjob(name: str) -> JsonObject:
    """A job whose roles are a list in its spec."""
    roles = [{"replicas": 1, "mxReplicaType": role, "template": template("mxnet")} for role in ("SCHEDULER", "SERVER", "WORKER")]
    return {"apiVersion": "fioravanzo.org/v1alpha1", "kind": "MXJob", "metadata": {"name": name}, "spec": {"replicaSpecs": roles}}


def listed(name: str) -> JsonObject:
    """A job whose spec is a list."""
    roles = [{"replicas": 1, "replicaType": role, "template": template()} for role in ("SCHEDULER", "SERVER", "WORKER")]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob", "metadata": {"name": name}, "spec": roles}


@dataclass(frozen=True)
class Said:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """A table, without its headers; a column may have single spaces."""
        return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in self.out.splitlines()[1:]]


@dataclass
class Beside:
    """A command that is under way."""

    process: asyncio.subprocess.Process
    text: str = ""

    async def until_printed(self, pattern: str) -> None:
        """Wait until something like this was printed."""
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            while not re.search(pattern, self.text):
                line = await self.process.stdout.readline()
                assert line, f"it ended without {pattern!r}: {self.text}"
                self.text += line.decode()


@dataclass(frozen=True)
class JobWorld:
    """The cluster, and how it is reached."""

    kit: OperatorKit
    kubeconfig: Path
    folder: Path
    capture: pytest.CaptureFixture[str]

    async def dlop(self, command: str, *words: str) -> Said:
        """Call a command, beside everything else that goes on."""
        self.capture.readouterr()
        code = await asyncio.to_thread(main, [command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *words])
        printed = self.capture.readouterr()
        return Said(code, printed.out, printed.err)

    def file(self, *manifests: JsonObject, name: str = "job.yaml") -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
        return str(path)

    def line_of(self, text: str, name: str = "job.yaml") -> int:
        """In which line of a file something stands."""
        lines = (self.folder / name).read_text().splitlines()
        return [line.strip() for line in lines].index(text) + 1

    async def is_in(self, manifest: JsonObject, phase: str) -> None:
        """Submit a job and wait until it is in a phase."""
        await self.kit.until(await self.kit.submit(manifest), phase=phase, within_seconds=30)

    def names_of(self, resource: Resource) -> list[str]:
        """All objects of a resource."""
        return [key.name for key, _ in self.kit.cluster.store.list(resource.qualified_name)]

    async def delete(self, name: str) -> None:
        """Delete a job behind the back of the commands."""
        await self.kit.client.delete(CrewJob.job_type.resource, name, namespace="default")

    async def told(self, name: str, reason: str) -> None:
        """Wait until an event has arrived."""
        await self.kit.until(f"default/{name}", reached=lambda view: reason in dict(view.events), within_seconds=30)

    @asynccontextmanager
    async def beside(self, command: str, *words: str) -> AsyncIterator[Beside]:
        """A command that goes on in a process of its own, until the block ends."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dlop", command, "--kubeconfig", str(self.kubeconfig), *FRAMEWORK, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
        )
        found = Beside(process)
        try:
            yield found
        finally:
            if process.returncode is None:
                process.kill()
            rest, _ = await process.communicate()
            found.text += rest.decode()


@asynccontextmanager
async def job_world(
    folder: Path, capture: pytest.CaptureFixture[str], *, operator: bool = True, kinds: Iterable[type[DLJob]] = KINDS
) -> AsyncIterator[JobWorld]:
    async with OperatorKit(kinds, time_scale=0.01, operator=operator and bool(kinds)) as kit:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps((await kit.cluster.serve()).kubeconfig()))
        # The operator would write between the lines of the commands: here they share a process.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        try:
            yield JobWorld(kit, kubeconfig, folder, capture)
        finally:
            structlog.reset_defaults()
