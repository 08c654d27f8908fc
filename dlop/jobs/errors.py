"""Errors of job operations. Each message names the job, the cause and a fix."""

from __future__ import annotations


class JobsError(Exception):
    """Base class. The message is meant for the user."""


class JobNotFoundError(JobsError):
    """No job or Cron of this name exists in the namespace."""


class CronsNotServedError(JobsError):
    """The CRD of Crons is not installed."""


class AmbiguousJobError(JobsError):
    """Several kinds have a job of this name."""


class JobUpdateError(JobsError):
    """The job does not allow the requested change."""


class WaitTimeoutError(JobsError):
    """The awaited condition was not met within the timeout."""


class WaitFailedError(JobsError):
    """The awaited condition can no longer be met, because the job finished or was deleted."""


class InvalidManifestError(JobsError):
    """A manifest is invalid. The message has one line per error, with file and line number."""


class CreateFailedError(JobsError):
    """The cluster rejected an object although its manifest is valid."""
