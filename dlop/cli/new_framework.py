"""`dlop new-framework`.

What `dlop new-framework` writes: a class, an example and a test that pass as they are.

The texts have gaps like `$kind`. What fills them was checked to be a name and nothing else.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from dlop.api.types import DeclarationError, JobType
from dlop.cli.common import Parser, say
from dlop.cli.errors import CommandError, UsageError


def parser() -> Parser:
    """What the command takes."""
    found = Parser("new-framework", "Writes a new framework: a class, an example and a test that pass as they are.")
    found.add_argument("name", metavar="NAME", help="the kind of its jobs, in camel case: RingJob")
    found.add_argument("--group", default="example.org", help="its API group, a domain of yours; default: example.org")
    found.add_argument("--out", type=Path, metavar="FOLDER", help="where to; default: a new folder of that name, in small letters")
    return found


def main(arguments: Sequence[str]) -> int:
    """Write a new framework."""
    options = parser().parse_args(arguments)

    new = _named(options.name, options.group)
    folder: Path = options.out or Path(new.module)
    _write(folder, framework_files(new))
    say(f"wrote a framework to {folder}. Try it:  cd {folder} && pytest && dlop render --framework {new.module}:{new.kind} job.yaml")
    return 0


def _named(name: str, group: str) -> NewFramework:
    try:
        JobType(group=group, version="v1", kind=name)
    except DeclarationError as error:
        raise UsageError(str(error)) from error
    if keyword.iskeyword(name) or keyword.iskeyword(name.lower()) or name == "DLJob":
        raise UsageError(f"{name} means something else already; take another name.")
    return NewFramework(kind=name, group=group)


def _write(folder: Path, files: dict[str, str]) -> None:
    there = sorted(name for name in files if (folder / name).exists())
    if there:
        raise CommandError(f"{folder} has {', '.join(there)} already, and nothing was written. Take another folder with --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)
    except OSError as error:
        raise CommandError(f"{folder} cannot be written to: {error.strerror or error}.") from error


_CLASS = Template('''\
"""$kind: a framework for dlop."""

from collections.abc import Mapping

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType


class $kind(DLJob):
    """Workers that find each other through PEERS. Say here what your job is: `kubectl explain` shows it."""

    job_type = JobType(group="$group", version="v1", kind="$kind")
    replica_types = (ReplicaType("Worker", minimum=1, required=True),)
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """What a worker must know to find the others."""
        peers = self.addresses("Worker")
        return {"RANK": str(replica.index), "WORLD_SIZE": str(len(peers)), "PEERS": ",".join(peers)}
''')

_EXAMPLE = Template("""\
# See what it becomes:  dlop render --framework $module:$kind job.yaml
# Have it in a cluster: dlop install --framework $module:$kind
# Run the operator:     dlop run --framework $module:$kind
apiVersion: $group/v1
kind: $kind
metadata:
  name: first
spec:
  runPolicy:
    backoffLimit: 3
  replicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: main
              image: busybox:1.36
              command: [sh, -c, 'echo "I am $$RANK of $$WORLD_SIZE: $$PEERS"']
""")

_TEST = Template('''\
"""$kind in a whole cluster: the operator and an API server in this process, and a clock that does not wait."""

from pathlib import Path

from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from $module import $kind

EXAMPLE = Path(__file__).with_name("job.yaml")


@virtual_time
async def test_the_example_runs_to_its_end() -> None:
    async with OperatorKit([$kind]) as kit:
        kit.script.when("first-worker-*").run().after(60).succeed()
        job = await kit.submit(EXAMPLE)
        await kit.until(job, phase="Succeeded")


@virtual_time
async def test_every_worker_knows_the_others() -> None:
    async with OperatorKit([$kind]) as kit:
        job = await kit.submit(EXAMPLE)
        await kit.until(job, phase="Running")
        for index in range(2):
            (container,) = job.pods[f"first-worker-{index}"]["spec"]["containers"]
            found = {variable["name"]: variable["value"] for variable in container["env"]}
            assert found == {"RANK": str(index), "WORLD_SIZE": "2", "PEERS": "first-worker-0:7000,first-worker-1:7000"}


@virtual_time
async def test_a_worker_that_is_evicted_is_replaced() -> None:
    async with OperatorKit([$kind]) as kit:
        kit.script.when("first-worker-0", times=1).run().after(10).evict()
        kit.script.when("first-worker-*").run().after(60).succeed()
        job = await kit.submit(EXAMPLE)
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["disruptions"] == {"Worker": 1}
''')


@dataclass(frozen=True, slots=True)
class NewFramework:
    """What a new framework is called."""

    kind: str
    group: str

    @property
    def module(self) -> str:
        """The name of its Python module."""
        return self.kind.lower()


def framework_files(new: NewFramework) -> dict[str, str]:
    """The files of a new framework, by name."""
    gaps = {"kind": new.kind, "group": new.group, "module": new.module}
    return {
        f"{new.module}.py": _CLASS.substitute(gaps),
        "job.yaml": _EXAMPLE.substitute(gaps),
        f"test_{new.module}.py": _TEST.substitute(gaps),
    }
