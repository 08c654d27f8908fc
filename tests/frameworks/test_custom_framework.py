"""The example of a framework of one's own: short, complete, and run by the whole operator."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from types import ModuleType

import yaml

from dlop import DLJob
from dlop.api.crd import definition
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.manifests import EXAMPLES, by_name, example, variables
from tests.unit.reconcile.world import World

FOLDER = EXAMPLES / "04-custom-framework"


def module() -> ModuleType:
    found = importlib.util.spec_from_file_location("ring_example", FOLDER / "ring.py")
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    sys.modules["ring_example"] = loaded
    found.loader.exec_module(loaded)
    return loaded


RingJob: type[DLJob] = module().RingJob


def test_the_whole_framework_has_at_most_25_lines() -> None:
    assert len((FOLDER / "ring.py").read_text().splitlines()) <= 25


def test_it_is_the_class_of_the_front_page() -> None:
    front_page = (EXAMPLES.parent / "README.md").read_text()
    body = inspect.getsource(RingJob).replace("(self, replica: Replica) -> Mapping[str, str]:", "(self, replica):")
    assert body.replace('        """What a peer reads at its start."""\n', "") in front_page


def test_each_peer_knows_its_rank_and_the_others() -> None:
    pods = by_name(render(example("04-custom-framework"), Registry([RingJob])), "Pod")
    assert [variables(pod)["RANK"] for pod in pods.values()] == ["0", "1", "2"]
    assert variables(pods["ring-peer-2"])["PEERS"] == "ring-peer-0:7000,ring-peer-1:7000,ring-peer-2:7000"


def test_its_definition_comes_with_it() -> None:
    found = definition(RingJob)
    assert found["metadata"]["name"] == "ringjobs.example.org"
    assert found["spec"]["names"]["shortNames"] == ["ring"]
    assert len(yaml.safe_dump(found)) < 100_000


def test_the_pure_engine_starts_all_peers_anew_when_one_fails() -> None:
    world = World(spec=example("04-custom-framework")["spec"], kind=RingJob)
    world.settle()
    world.run()
    world.settle()
    before = world.uids()
    world.exit("ring-peer-1", 1)
    world.settle()
    after = world.uids()
    assert set(before) == set(after) == {"ring-peer-0", "ring-peer-1", "ring-peer-2"}
    assert not set(before.values()) & set(after.values())
    assert (world.record["attempt"], world.record["restarts"]) == (1, {"Peer": 1})


@virtual_time
async def test_the_example_runs_through_a_restart_of_the_whole_job_to_its_end() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("ring-peer-1", times=1).run().after(5).fail(exit_code=1)
        kit.script.when("*").run().after(30).succeed()
        job = await kit.submit(FOLDER / "job.yaml")
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["attempt"] == 1
        assert {pod["metadata"]["labels"]["dlop.dev/attempt"] for pod in job.pods.values()} == {"1"}
        assert await kit.writes_at_rest() == []
