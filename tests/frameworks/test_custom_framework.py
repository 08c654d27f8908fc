"""The example of a custom framework: its length, its objects, and a complete run."""

from __future__ import annotations

import inspect

import yaml

from dlop.api.crd import build_crd
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import EXAMPLES, by_name, example, variables
from tests.frameworks.ring_example import RING_EXAMPLE, RingJob
from tests.unit.reconcile.world import World


def test_the_framework_has_at_most_25_lines() -> None:
    assert len((RING_EXAMPLE / "ring.py").read_text().splitlines()) <= 25


def test_the_readme_shows_the_same_class() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    body = inspect.getsource(RingJob).replace("(self, replica: Replica) -> Mapping[str, str]:", "(self, replica):")
    assert body.replace('        """Read by `peer.py`."""\n', "") in readme


def test_the_environment_of_a_peer_has_its_rank_and_all_addresses() -> None:
    pods = by_name(render(example("04-custom-framework"), Registry([RingJob])), "Pod")
    assert [variables(pod)["RANK"] for pod in pods.values()] == ["0", "1", "2"]
    assert variables(pods["ring-peer-2"])["PEERS"] == "ring-peer-0:7000,ring-peer-1:7000,ring-peer-2:7000"


def test_the_crd_is_generated_from_the_class() -> None:
    crd = build_crd(RingJob)
    assert crd["metadata"]["name"] == "ringjobs.example.org"
    assert crd["spec"]["names"]["shortNames"] == ["ring"]
    assert len(yaml.safe_dump(crd)) < 100_000


def test_a_failed_peer_restarts_all_peers() -> None:
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
async def test_the_example_succeeds_after_a_restart_of_the_whole_job() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("ring-peer-1", times=1).run().after(5).fail(exit_code=1)
        kit.script.when("*").run().after(30).succeed()
        job = await kit.submit(RING_EXAMPLE / "job.yaml")
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["attempt"] == 1
        assert {pod["metadata"]["labels"]["dlop.dev/attempt"] for pod in job.pods.values()} == {"1"}
        assert await kit.writes_when_idle() == []
