"""What can go wrong with jobs, told in sentences that name the job and the way out."""

from __future__ import annotations


class JobsError(Exception):
    """Something about a job did not work, for a reason that its user can understand."""


class NoSuchJobError(JobsError):
    """There is no job of that name."""


class AmbiguousJobError(JobsError):
    """Several jobs have that name."""


class CannotChangeError(JobsError):
    """The job cannot be changed that way."""


class WaitTimeoutError(JobsError):
    """What was waited for did not happen in time."""


class OutOfReachError(JobsError):
    """What was waited for cannot happen any more."""


class SubmitError(JobsError):
    """Something is wrong with a manifest. The message has a line for each mistake, with the file and its line."""


class NotCreatedError(JobsError):
    """The cluster will not have something, though nothing is wrong with its manifest."""
