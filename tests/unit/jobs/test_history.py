"""Grouping of the history: equal entries of several pods become one group."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dlop.console.describe_page import render_page
from dlop.jobs.history import HistoryEntry, HistoryGroup, group_history
from tests.unit.console.views import job_view

PULL_ERROR = "failed to pull image: not found"


def entry(second: int, subject: str, *, reason: str = "Failed", message: str = PULL_ERROR, count: int = 1) -> HistoryEntry:
    return HistoryEntry(at=f"1970-01-01T00:00:{second:02}Z", subject=subject, reason=reason, message=message, count=count, is_warning=True)


def test_equal_entries_of_several_pods_have_the_last_time_and_the_total_count() -> None:
    entries = [entry(1, "pod a"), entry(2, "pod b", count=3), entry(4, "pod c")]
    assert group_history(entries) == (
        HistoryGroup(
            at="1970-01-01T00:00:04Z",
            subjects=("pod a", "pod b", "pod c"),
            reason="Failed",
            message=PULL_ERROR,
            is_warning=True,
            count=5,
        ),
    )


def test_a_group_is_ordered_by_its_last_entry() -> None:
    entries = [entry(1, "pod a"), entry(2, "job", reason="Running", message="the job is running"), entry(3, "pod b")]
    assert [group.reason for group in group_history(entries)] == ["Running", "Failed"]


def test_entries_with_another_reason_or_message_are_not_grouped() -> None:
    entries = [entry(1, "pod a"), entry(2, "pod b", reason="BackOff"), entry(3, "pod c", message="unauthorized")]
    assert [group.subjects for group in group_history(entries)] == [("pod a",), ("pod b",), ("pod c",)]


def test_entries_of_the_job_are_not_grouped() -> None:
    entries = [entry(1, "job"), entry(2, "job"), entry(3, "pod a"), entry(4, "job")]
    assert [group.subjects for group in group_history(entries)] == [("job",), ("job",), ("pod a",), ("job",)]


def test_entries_of_a_pod_that_was_created_again_start_a_new_group() -> None:
    first = [entry(1, "pod a", reason="Started"), entry(2, "pod b", reason="Started")]
    second = [entry(11, "pod a", reason="Started"), entry(12, "pod b", reason="Started")]
    assert [(group.at[-3:-1], group.subjects) for group in group_history(first + second)] == [
        ("02", ("pod a", "pod b")),
        ("12", ("pod a", "pod b")),
    ]


@given(entries=st.lists(st.builds(entry, st.integers(0, 59), st.sampled_from(["job", "pod a", "pod b"]), reason=st.sampled_from("xy"))))
def test_no_entry_is_lost(entries: list[HistoryEntry]) -> None:
    groups = group_history(entries)
    assert sum(group.count for group in groups) == len(entries)
    assert sorted(subject for group in groups for subject in group.subjects) == sorted(each.subject for each in entries)
    assert all(len(set(group.subjects)) == len(group.subjects) for group in groups)


def test_describe_prints_one_line_for_a_group() -> None:
    entries = [entry(10, f"pod worker-{index}", count=3) for index in range(4)]
    view = msgspec.structs.replace(job_view(), history=tuple(entries))
    lines = [text for _, text in render_page(view, now=70.0)]
    assert lines[-1] == f"  1m ago       Failed             4 pods: {PULL_ERROR} (12 times)"
    assert lines[-2] == "History"
