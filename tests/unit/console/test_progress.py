"""The progress of a job as plain lines and as a live table."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import msgspec
import pytest
from rich.console import Console

from dlop.console.live_view import LiveView
from dlop.console.plain_view import PlainView
from dlop.console.progress import blocking_reasons, describe_changes, format_counts, format_seconds, job_labels
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.job import DLJob
from dlop.jobs.log_lines import LogLine
from dlop.jobs.lookup import JobHandle
from dlop.kube.objects import CustomObject, ObjectMeta
from tests.sim.crew_job import CrewJob
from tests.unit.console.views import job_view, replica


@dataclass
class Clock:
    now: float = 0.0
    stream: io.StringIO = field(default_factory=io.StringIO)

    def __call__(self) -> float:
        return self.now


def test_replicas_are_counted_by_state() -> None:
    view = job_view(replica(0, "Running"), replica(1, "Succeeded"), replica(2, "Pending"))
    assert format_counts(view) == "1 of 3 running, 1 succeeded"


def test_seconds_are_formatted_with_a_sensible_precision() -> None:
    assert [format_seconds(seconds) for seconds in (0.44, 9.96, 42.2, 187.0)] == ["0.4 s", "10.0 s", "42 s", "3 min 7 s"]


def test_only_changes_are_described() -> None:
    before = job_view(replica(0, "Running"), replica(1, "Running"))
    after = job_view(replica(0, "Running"), replica(1, "Failed", exit_code=137, reason="OOMKilled", restarts=1))
    assert list(describe_changes(before, after)) == ["worker-1: Failed (exit code 137, OOMKilled, restarted 1 time)"]
    assert list(describe_changes(after, after)) == []


def handle(kind: type[DLJob], name: str, *, namespace: str = "default") -> JobHandle:
    raw = msgspec.Raw(b"{}")
    metadata = ObjectMeta(name=name, namespace=namespace, uid=f"{kind.__module__}/{namespace}/{name}")
    return JobHandle(kind, CustomObject(metadata=metadata, spec=raw, status=raw))


@pytest.mark.parametrize(
    ("jobs", "labels"),
    [
        ([handle(CrewJob, "one")], [""]),
        ([handle(CrewJob, "one"), handle(CrewJob, "two")], ["one", "two"]),
        ([handle(CrewJob, "one"), handle(CrewJob, "one", namespace="team")], ["default/one", "team/one"]),
        ([handle(CrewJob, "one"), handle(MXJob, "one")], ["crewjobs.crew.dlop.dev/one", "mxjobs.fioravanzo.org/one"]),
        (
            [handle(CrewJob, "one"), handle(MXJob, "one"), handle(MXJob, "one", namespace="team")],
            ["default/crewjobs.crew.dlop.dev/one", "default/mxjobs.fioravanzo.org/one", "team/mxjobs.fioravanzo.org/one"],
        ),
    ],
)
def test_several_jobs_have_different_labels_and_a_single_one_has_none(jobs: list[JobHandle], labels: list[str]) -> None:
    assert job_labels(jobs) == dict(zip((job.uid for job in jobs), labels, strict=True))


async def test_lines_about_replicas_have_the_label_of_the_job() -> None:
    line = LogLine(role="Worker", index=0, pod="p", container="c", text="hello", run=1)
    stream, clock = io.StringIO(), Clock()
    plain = PlainView(stream)
    plain.show_job(job_view(replica(0, "Running"), phase="Running"), elapsed_seconds=0.5, label="one")
    plain.show_log_line(line, job_label="one")
    plain.show_log_line(line)
    assert stream.getvalue().splitlines()[1:] == ["   0.5s  one/worker-0: Running", "one/worker-0#2 | hello", "worker-0#2     | hello"]
    async with LiveView(Console(file=clock.stream, width=100, height=20), clock=clock) as live:
        live.show_job(job_view(replica(0, "Running")), elapsed_seconds=0.5, label="one")
        live.show_log_line(line, job_label="one")
    assert "one/worker-0#2 | hello\n" in clock.stream.getvalue()


def test_a_job_that_was_not_reconciled_yet_has_no_changes() -> None:
    assert list(describe_changes(None, job_view(replica(0, "Missing"), phase="NotReconciled"))) == []


def test_transient_reasons_are_not_blocking() -> None:
    transient, lasting = "pod demo-worker-0: ContainerCreating", "pod demo-worker-1: Unschedulable: no gpus"
    assert blocking_reasons(job_view(replica(0, "Pending"), reasons=(transient, lasting))) == [lasting]
    assert blocking_reasons(job_view(replica(0, "Failed"), phase="Failed", reasons=(lasting,))) == []


def test_the_same_reason_of_more_pods_is_printed_once() -> None:
    stream = io.StringIO()
    view = PlainView(stream)
    reason = "ErrImagePull: the image is not mapped to a program; use --image x=PATH to map it"
    view.show_job(job_view(replica(0, "Pending"), phase="Created", reasons=(f"pod a: {reason}",)), elapsed_seconds=0.5)
    view.show_job(job_view(replica(0, "Pending"), phase="Created", reasons=(f"pods a, b: {reason}",)), elapsed_seconds=1.5)
    assert stream.getvalue().count("is waiting:") == 1


def test_terminating_replicas_of_a_finished_job_are_described_when_they_have_terminated() -> None:
    before = job_view(replica(0, "Running"), replica(1, "Running"), replica(2, "Running"))
    terminating = job_view(*(replica(index, "Terminating") for index in range(3)), phase="Succeeded")
    final = job_view(replica(0, "Succeeded", exit_code=0), replica(1, "Gone", exit_code=143), replica(2, "Terminating"), phase="Succeeded")
    assert list(describe_changes(before, terminating)) == ["RingJob demo: Succeeded"]
    assert list(describe_changes(terminating, final)) == ["worker-0: Succeeded (exit code 0)", "worker-1: Gone (exit code 143)"]
    assert list(describe_changes(before, job_view(replica(0, "Terminating")))) == ["worker-0: Terminating"]


async def test_the_elapsed_time_stops_when_the_job_has_finished() -> None:
    clock = Clock(now=100.0)
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20)
    async with LiveView(console, clock=clock) as view:
        view.show_job(job_view(replica(0, "Running")), elapsed_seconds=2.0)
        clock.now = 101.5
        view._draw()
        assert "1 of 1 running  3.5 s" in clock.stream.getvalue()
        view.show_job(job_view(replica(0, "Succeeded"), phase="Succeeded"), elapsed_seconds=4.0)
        clock.now = 109.0
    assert "1 succeeded  4.0 s" in clock.stream.getvalue()


async def test_a_large_job_fits_on_the_terminal_and_is_complete_at_the_end() -> None:
    clock = Clock()
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20)
    async with LiveView(console, clock=clock) as view:
        view.show_job(job_view(*(replica(index, "Failed" if index == 77 else "Running") for index in range(100))), elapsed_seconds=0.0)
        view._draw()
        frame = clock.stream.getvalue()
        assert frame.count("Worker") <= 14
        assert "Failed" in frame
        assert "more" in frame
    assert clock.stream.getvalue().removeprefix(frame).count("Worker") == 100


async def test_terminal_sequences_of_programs_are_dropped_except_for_colors() -> None:
    clock = Clock()
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20, color_system="standard")
    text = "\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07done"
    async with LiveView(console, clock=clock) as view:
        view.show_log_line(LogLine(role="Worker", index=0, pod="p", container="c", text=text))
    printed = clock.stream.getvalue()
    assert "\x1b[31mred" in printed
    assert "\x1b[2J" not in printed
    assert "\x1b]0;" not in printed
