"""`dlop new-framework`."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from dlop.api.types import DeclarationError, JobType
from dlop.cli.common import Parser, print_line
from dlop.cli.errors import CommandError, UsageError


def parser() -> Parser:
    parser = Parser("new-framework", "Generate a new framework: a class, an example and a test.")
    parser.add_argument("name", metavar="NAME", help="The kind of its jobs in CamelCase, such as RingJob.")
    parser.add_argument("--group", default="example.org", help="The API group of the kind. Default: example.org.")
    parser.add_argument("--out", type=Path, metavar="DIR", help="The directory for the files. Default: the kind in lower case.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    framework = _validate(options.name, options.group)
    directory: Path = options.out or Path(framework.module)
    _write(directory, framework_files(framework))
    command = f"cd {directory} && pytest && dlop render --framework {framework.module}:{framework.kind} job.yaml"
    print_line(f"generated a framework in {directory}. Try it:  {command}")
    return 0


def _validate(name: str, group: str) -> NewFramework:
    try:
        JobType(group=group, version="v1", kind=name)
    except DeclarationError as error:
        raise UsageError(str(error)) from error
    if keyword.iskeyword(name) or keyword.iskeyword(name.lower()) or name == "DLJob":
        raise UsageError(f"{name} is reserved; choose another name.")
    return NewFramework(kind=name, group=group)


def _write(directory: Path, files: dict[str, str]) -> None:
    existing = sorted(name for name in files if (directory / name).exists())
    if existing:
        raise CommandError(f"{directory} already contains {', '.join(existing)}; nothing was written. Use --out for another directory.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_text(content)
    except OSError as error:
        raise CommandError(f"{directory} is not writable: {error.strerror or error}.") from error


_CLASS = Template('''\
"""$kind: a framework for dlop."""

from collections.abc import Mapping

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType


class $kind(DLJob):
    """Workers that find each other through PEERS. `kubectl explain` shows this description."""

    job_type = JobType(group="$group", version="v1", kind="$kind")
    replica_types = (ReplicaType("Worker", minimum=1, required=True),)
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        peers = self.addresses("Worker")
        return {"RANK": str(replica.index), "WORLD_SIZE": str(len(peers)), "PEERS": ",".join(peers)}
''')

_EXAMPLE = Template("""\
# Print its pods:    dlop render --framework $module:$kind job.yaml
# Install the CRD:   dlop install --framework $module:$kind
# Run the operator:  dlop run --framework $module:$kind
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
              command: [sh, -c, 'echo "rank $$RANK of $$WORLD_SIZE: $$PEERS"']
""")

_TEST = Template('''\
"""$kind on an embedded cluster with a scripted kubelet and virtual time."""

from pathlib import Path

from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from $module import $kind

EXAMPLE = Path(__file__).with_name("job.yaml")


@virtual_time
async def test_the_example_succeeds() -> None:
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
            environment = {variable["name"]: variable["value"] for variable in container["env"]}
            assert environment == {"RANK": str(index), "WORLD_SIZE": "2", "PEERS": "first-worker-0:7000,first-worker-1:7000"}


@virtual_time
async def test_an_evicted_worker_is_replaced() -> None:
    async with OperatorKit([$kind]) as kit:
        kit.script.when("first-worker-0", times=1).run().after(10).evict()
        kit.script.when("first-worker-*").run().after(60).succeed()
        job = await kit.submit(EXAMPLE)
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["disruptions"] == {"Worker": 1}
''')


@dataclass(frozen=True, slots=True)
class NewFramework:
    """Names for the templates. They were validated, so the templates need no escaping."""

    kind: str
    group: str

    @property
    def module(self) -> str:
        return self.kind.lower()


def framework_files(framework: NewFramework) -> dict[str, str]:
    """Contents by file name."""
    values = {"kind": framework.kind, "group": framework.group, "module": framework.module}
    return {
        f"{framework.module}.py": _CLASS.substitute(values),
        "job.yaml": _EXAMPLE.substitute(values),
        f"test_{framework.module}.py": _TEST.substitute(values),
    }
