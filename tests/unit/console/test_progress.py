"""What is told of a job while it runs, as lines and as a picture."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import msgspec
from rich.console import Console

from dlop.console.live_view import LiveScreen
from dlop.console.plain_view import LineScreen
from dlop.console.progress import changes, counted, obstacles, seconds
from dlop.jobs.log_lines import LogLine
from dlop.jobs.replicas import ReplicaView
from dlop.jobs.view import JobView, RoleView


def replica(index: int, state: str, **more: object) -> ReplicaView:
    return msgspec.structs.replace(ReplicaView(role="Worker", index=index, state=state, pod=f"demo-worker-{index}"), **more)


def view(*replicas: ReplicaView, phase: str = "Running", waits: tuple[str, ...] = ()) -> JobView:
    role = RoleView(name="Worker", wanted=len(replicas), pending=0, running=0, succeeded=0, failed=0, restarts=0, disruptions=0)
    return JobView(
        kind="RingJob",
        api_version="example.org/v1",
        reference="ringjobs.example.org/demo",
        namespace="default",
        name="demo",
        uid="1",
        phase=phase,
        message="",
        is_leaving=False,
        created_at="",
        started_at="",
        finished_at="",
        attempt=0,
        restarts=0,
        disruptions=0,
        roles=(role,),
        replicas=replicas,
        waits_for=waits,
        blocked=None,
        last_failure=None,
        history=(),
    )


@dataclass
class Clock:
    now: float = 0.0
    stream: io.StringIO = field(default_factory=io.StringIO)

    def __call__(self) -> float:
        return self.now


def test_progress_is_counted() -> None:
    assert counted(view(replica(0, "Running"), replica(1, "Succeeded"), replica(2, "Pending"))) == "1 of 3 running, 1 succeeded"


def test_times_are_told_as_people_do() -> None:
    assert [seconds(span) for span in (0.44, 9.96, 42.2, 187.0)] == ["0.4 s", "10.0 s", "42 s", "3 min 7 s"]


def test_only_what_has_changed_is_told() -> None:
    before = view(replica(0, "Running"), replica(1, "Running"))
    after = view(replica(0, "Running"), replica(1, "Failed", exit_code=137, reason="OOMKilled", restarts=1))
    assert list(changes(before, after)) == ["worker-1: Failed (exit code 137, OOMKilled, restarted 1 time)"]
    assert list(changes(after, after)) == []


def test_a_job_that_nobody_has_looked_at_is_not_worth_a_line() -> None:
    assert list(changes(None, view(replica(0, "Missing"), phase="Unseen"))) == []


def test_what_passes_in_a_moment_is_no_obstacle() -> None:
    brief, lasting = "pod demo-worker-0: ContainerCreating", "pod demo-worker-1: Unschedulable: no gpus"
    assert obstacles(view(replica(0, "Pending"), waits=(brief, lasting))) == [lasting]
    assert obstacles(view(replica(0, "Failed"), phase="Failed", waits=(lasting,))) == []


def test_the_same_trouble_of_more_pods_is_told_once() -> None:
    stream = io.StringIO()
    screen = LineScreen(stream)
    trouble = "ErrImagePull: nothing is known here of the image, so say --image x=PATH"
    screen.show(view(replica(0, "Pending"), phase="Created", waits=(f"pod a: {trouble}",)), elapsed_seconds=0.5)
    screen.show(view(replica(0, "Pending"), phase="Created", waits=(f"pods a, b: {trouble}",)), elapsed_seconds=1.5)
    assert stream.getvalue().count("waits:") == 1


def test_of_a_job_that_is_over_it_is_told_how_replicas_ended_and_not_that_they_are_about_to() -> None:
    before = view(replica(0, "Running"), replica(1, "Running"), replica(2, "Running"))
    leaving = view(*(replica(index, "Terminating") for index in range(3)), phase="Succeeded")
    ended = view(replica(0, "Succeeded", exit_code=0), replica(1, "Gone", exit_code=143), replica(2, "Terminating"), phase="Succeeded")
    assert list(changes(before, leaving)) == ["RingJob demo: Succeeded"]
    assert list(changes(leaving, ended)) == ["worker-0: Succeeded (exit code 0)", "worker-1: Gone (exit code 143)"]
    assert list(changes(before, view(replica(0, "Terminating")))) == ["worker-0: Terminating"]


async def test_the_time_of_a_job_goes_on_until_it_is_over() -> None:
    clock = Clock(now=100.0)
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20)
    async with LiveScreen(console, clock=clock) as screen:
        screen.show(view(replica(0, "Running")), elapsed_seconds=2.0)
        clock.now = 101.5
        screen._draw()
        assert "1 of 1 running  3.5 s" in clock.stream.getvalue()
        screen.show(view(replica(0, "Succeeded"), phase="Succeeded"), elapsed_seconds=4.0)
        clock.now = 109.0
    assert "1 succeeded  4.0 s" in clock.stream.getvalue()


async def test_a_large_job_fits_on_the_screen_and_is_whole_at_the_end() -> None:
    clock = Clock()
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20)
    async with LiveScreen(console, clock=clock) as screen:
        screen.show(view(*(replica(index, "Failed" if index == 77 else "Running") for index in range(100))), elapsed_seconds=0.0)
        screen._draw()
        shown = clock.stream.getvalue()
        assert shown.count("Worker") <= 14
        assert "Failed" in shown
        assert "more" in shown
    assert clock.stream.getvalue().removeprefix(shown).count("Worker") == 100


async def test_what_a_program_does_to_terminals_is_dropped_but_for_its_colours() -> None:
    clock = Clock()
    console = Console(file=clock.stream, force_terminal=True, width=100, height=20, color_system="standard")
    async with LiveScreen(console, clock=clock) as screen:
        screen.hear(LogLine(role="Worker", index=0, pod="p", container="c", text="\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07done"))
    shown = clock.stream.getvalue()
    assert "\x1b[31mred" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0;" not in shown
