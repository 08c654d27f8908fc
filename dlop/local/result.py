"""How a session ended, for people and for machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dlop.api.phase import Phase
from dlop.api.record import describe_failure
from dlop.console.progress import seconds, title
from dlop.jobs.view import JobView

SUCCEEDED, FAILED, MISTAKEN = 0, 1, 2


class SessionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the jobs of one session. It becomes JSON as it stands."""

    exit_code: int
    verdict: str
    """`Succeeded`, `Failed`, `Invalid`, `TimedOut` or `Deleted`."""
    reason: str = ""
    start_seconds: float = 0.0
    """How long it took until the cluster was there."""
    seconds: float = 0.0
    """How long the jobs took."""
    kept_in: str = ""
    """The folder that was kept."""
    mistakes: tuple[str, ...] = ()
    jobs: tuple[JobView, ...] = ()


def judged(views: Sequence[JobView]) -> tuple[int, str, str]:
    """Exit code, verdict and reason of jobs that are over: the worst of them decides."""
    if all(view.has_succeeded for view in views):
        return SUCCEEDED, Phase.SUCCEEDED, ""
    worst = next((view for view in views if view.phase == Phase.INVALID), None) or next(view for view in views if not view.has_succeeded)
    # The name of the job stands before it anyway.
    said = worst.message.removeprefix(f"{worst.kind} {worst.name} has failed").removeprefix(": ")
    reason = said or (describe_failure(worst.last_failure) if worst.last_failure else "")
    code = MISTAKEN if worst.phase == Phase.INVALID else FAILED
    return code, worst.phase, reason if len(views) == 1 else f"{title(worst)}: {reason}"


def verdict_line(outcome: SessionResult, *, way_to_logs: str) -> str:
    """The last line: the verdict, the reason, and the way to the logs."""
    who = title(outcome.jobs[0]) if len(outcome.jobs) == 1 else f"{len(outcome.jobs)} jobs:"
    reason = f": {' '.join(outcome.reason.split())}" if outcome.reason else ""
    return f"{who} {outcome.verdict} after {seconds(outcome.seconds)}{reason}{way_to_logs}"


def mistake_lines(mistakes: Sequence[str]) -> Iterator[str]:
    """What is wrong with the files."""
    count = f"{len(mistakes)} mistake{'s' if len(mistakes) != 1 else ''}"
    yield f"{count}; nothing was run:"
    yield from (f"  {line}" for line in mistakes)
