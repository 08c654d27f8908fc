from __future__ import annotations

from dlop import JobSpec, ManifestField
from dlop.api.job_resource import ParsedSpec, SpecCache
from tests.unit.job.jobs import PairJob, make, pair_spec

PARSED = ParsedSpec({}, JobSpec(roles=()), ())


class CountedJob(PairJob):
    """Counts how often a spec is parsed."""

    reads = 0

    def read_spec(self, spec: ManifestField) -> JobSpec:
        type(self).reads += 1
        return super().read_spec(spec)


def test_a_spec_is_parsed_once_until_it_changes() -> None:
    CountedJob.reads = 0
    for followers in (1, 1, 1, 2):
        assert make(CountedJob, pair_spec(followers=followers)).replicas("Follower") == followers
    assert CountedJob.reads == 2


def test_the_least_recently_used_spec_is_dropped_first() -> None:
    cache = SpecCache(max_entries=2)
    for spec in (b"1", b"2"):
        cache.put(PairJob, spec, PARSED)
    assert cache.get(PairJob, b"1") is PARSED
    cache.put(PairJob, b"3", PARSED)
    assert len(cache) == 2
    assert [cache.get(PairJob, spec) is not None for spec in (b"1", b"2", b"3")] == [True, False, True]


def test_two_kinds_do_not_share_a_cached_spec() -> None:
    cache = SpecCache()
    cache.put(PairJob, b"{}", PARSED)
    assert cache.get(CountedJob, b"{}") is None
