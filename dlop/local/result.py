"""The result of a session. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dlop.api.phase import Phase
from dlop.api.record import describe_failure
from dlop.console.progress import format_seconds, job_title
from dlop.jobs.view import JobView

SUCCEEDED, FAILED, INVALID = 0, 1, 2


class SessionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a session. Encoded as it is for `--output json`."""

    exit_code: int
    verdict: str
    """`Succeeded`, `Failed`, `Invalid`, `TimedOut` or `Deleted`."""
    reason: str = ""
    start_seconds: float = 0.0
    """Time until the cluster was ready."""
    seconds: float = 0.0
    """Duration of the jobs."""
    isolation: str = ""
    """How pods were isolated, in one line."""
    kept_in: str = ""
    """The working directory, if it was kept."""
    errors: tuple[str, ...] = ()
    """Validation errors of the manifests."""
    jobs: tuple[JobView, ...] = ()


def evaluate_jobs(views: Sequence[JobView]) -> tuple[int, str, str]:
    """Exit code, verdict and reason of finished jobs. The worst job decides."""
    if all(view.has_succeeded for view in views):
        return SUCCEEDED, Phase.SUCCEEDED, ""
    worst = next((view for view in views if view.phase == Phase.INVALID), None) or next(view for view in views if not view.has_succeeded)
    # The name of the job is printed before the reason.
    message = worst.message.removeprefix(f"{worst.kind} {worst.name} has failed").removeprefix(": ")
    reason = message or (describe_failure(worst.last_failure) if worst.last_failure else "")
    code = INVALID if worst.phase == Phase.INVALID else FAILED
    return code, worst.phase, reason if len(views) == 1 else f"{job_title(worst)}: {reason}"


def format_result_line(result: SessionResult, *, log_hint: str) -> str:
    """The last line of the output: verdict, reason and where the logs are."""
    subject = job_title(result.jobs[0]) if len(result.jobs) == 1 else f"{len(result.jobs)} jobs:"
    reason = f": {' '.join(result.reason.split())}" if result.reason else ""
    return f"{subject} {result.verdict} after {format_seconds(result.seconds)}{reason}{log_hint}"


def format_errors(errors: Sequence[str]) -> Iterator[str]:
    yield f"{len(errors)} validation error{'s' if len(errors) != 1 else ''}; nothing was created:"
    yield from (f"  {line}" for line in errors)
