from __future__ import annotations

from dlop import JobSpec, ManifestField
from dlop.api.job_resource import ParsedSpec, SpecCache
from tests.unit.job.jobs import PairJob, make, pair_spec

READING = ParsedSpec({}, JobSpec(roles=()), ())


class CountedJob(PairJob):
    """Counts how often a spec is read."""

    reads = 0

    def read_spec(self, spec: ManifestField) -> JobSpec:
        type(self).reads += 1
        return super().read_spec(spec)


def test_a_spec_is_read_once_and_again_when_it_has_changed() -> None:
    CountedJob.reads = 0
    for followers in (1, 1, 1, 2):
        assert make(CountedJob, pair_spec(followers=followers)).replicas("Follower") == followers
    assert CountedJob.reads == 2


def test_only_so_many_readings_are_kept_and_the_least_used_go_first() -> None:
    readings = SpecCache(most=2)
    for spec in (b"1", b"2"):
        readings.keep(PairJob, spec, READING)
    assert readings.get(PairJob, b"1") is READING
    readings.keep(PairJob, b"3", READING)
    assert len(readings) == 2
    assert [readings.get(PairJob, spec) is not None for spec in (b"1", b"2", b"3")] == [True, False, True]


def test_two_kinds_do_not_share_a_reading() -> None:
    readings = SpecCache()
    readings.keep(PairJob, b"{}", READING)
    assert readings.get(CountedJob, b"{}") is None
