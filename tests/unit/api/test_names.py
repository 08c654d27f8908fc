from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.names import dns_label, label_value, short_hash

SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
job_names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}", fullmatch=True)


def test_a_valid_name_is_unchanged() -> None:
    assert dns_label("train", "-worker-0") == "train-worker-0"


def test_a_name_is_the_same_in_every_process() -> None:
    assert (dns_label("my.job", "-worker-0"), short_hash("some uid", length=4)) == ("my-job-t662j8yz-worker-0", "66dr")


@given(job_names, st.integers(0, 9999))
def test_every_job_name_yields_valid_service_names(job: str, index: int) -> None:
    name = dns_label(job, f"-scheduler-{index}")
    assert len(name) <= 63
    assert SERVICE_NAME.fullmatch(name)
    assert name.endswith(f"-scheduler-{index}")


@given(st.sets(job_names, min_size=2, max_size=2))
def test_two_jobs_never_have_the_same_name(jobs: set[str]) -> None:
    first, second = jobs
    assert dns_label(first, "-worker-0") != dns_label(second, "-worker-0")


@pytest.mark.parametrize(("job", "other"), [("a" * 63, "a" * 62 + "b"), ("my.job", "my-job"), ("1st", "j-1st")])
def test_names_that_are_normalized_or_truncated_stay_distinct(job: str, other: str) -> None:
    assert dns_label(job, "-worker-0") != dns_label(other, "-worker-0")


@given(job_names)
def test_every_job_name_yields_a_valid_label_value(job: str) -> None:
    value = label_value(job)
    assert len(value) <= 63
    assert LABEL_VALUE.fullmatch(value)
    assert value == job or len(job) > 63
