from __future__ import annotations

from dlop import DLJob, JobSpec, ManifestField, Schema
from dlop.api.job_resource import ParsedSpec, SpecCache
from tests.unit.job.jobs import PairJob, make, pair_spec

PARSED = ParsedSpec({}, JobSpec(roles=()), ())


reads: list[ManifestField] = []


class CountedSchema(Schema):
    """Counts how often a spec is parsed."""

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        reads.append(spec)
        return super().read(spec, kind)


class CountedJob(PairJob):
    schema = CountedSchema()


def test_a_spec_is_parsed_once_until_it_changes() -> None:
    reads.clear()
    for followers in (1, 1, 1, 2):
        assert make(CountedJob, pair_spec(followers=followers)).replicas("Follower") == followers
    assert len(reads) == 2


def test_the_least_recently_used_spec_is_dropped_first() -> None:
    cache = SpecCache(max_entries=2)
    for spec in (b"1", b"2"):
        cache.put(PairJob, spec, PARSED)
    assert cache.get(PairJob, b"1") is PARSED
    cache.put(PairJob, b"3", PARSED)
    assert len(cache) == 2
    assert [cache.get(PairJob, spec) is not None for spec in (b"1", b"2", b"3")] == [True, False, True]


def test_old_specs_are_dropped_when_the_cached_specs_exceed_the_limit_in_bytes() -> None:
    cache = SpecCache(max_bytes=10)
    small, medium, large = b"1", b"2" * 5, b"3" * 9
    for spec in (small, medium, large):
        cache.put(PairJob, spec, PARSED)
    assert [cache.get(PairJob, spec) is not None for spec in (small, medium, large)] == [False, False, True]


def test_bytes_of_dropped_and_repeated_specs_do_not_count() -> None:
    cache = SpecCache(max_bytes=10)
    for spec in (b"1" * 8, b"2" * 5, b"2" * 5, b"3" * 5):
        cache.put(PairJob, spec, PARSED)
    assert [cache.get(PairJob, spec) is not None for spec in (b"1" * 8, b"2" * 5, b"3" * 5)] == [False, True, True]


def test_a_spec_above_the_limit_in_bytes_does_not_displace_other_specs() -> None:
    cache = SpecCache(max_bytes=10)
    cache.put(PairJob, b"1", PARSED)
    assert cache.put(PairJob, b"2" * 11, PARSED) is PARSED
    assert [cache.get(PairJob, spec) is not None for spec in (b"1", b"2" * 11)] == [True, False]


def test_two_kinds_do_not_share_a_cached_spec() -> None:
    cache = SpecCache()
    cache.put(PairJob, b"{}", PARSED)
    assert cache.get(CountedJob, b"{}") is None
