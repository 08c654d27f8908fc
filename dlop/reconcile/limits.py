"""How often a job may be restarted or disrupted before it has failed."""

from __future__ import annotations

from dlop.api.constants import Reason
from dlop.api.phase import Verdict
from dlop.api.record import LastFailure
from dlop.api.spec import RunPolicy
from dlop.reconcile.record_builder import Ledger


def exceeded(policy: RunPolicy, ledger: Ledger) -> Verdict | None:
    """The end of a job that was restarted or disrupted more often than it may be."""
    restarts = sum(ledger.restarts.values())
    if policy.backoff_limit is not None and restarts > policy.backoff_limit:
        message = f"the backoff limit of {policy.backoff_limit} is exceeded{_last(ledger)}"
        return Verdict(succeeded=False, reason=Reason.BACKOFF_LIMIT_EXCEEDED, message=message)
    disruptions = sum(ledger.disruptions.values())
    if policy.disruption_limit is not None and disruptions > policy.disruption_limit:
        message = f"the disruption limit of {policy.disruption_limit} is exceeded{_last(ledger)}"
        return Verdict(succeeded=False, reason=Reason.DISRUPTION_LIMIT_EXCEEDED, message=message)
    return None


def _last(ledger: Ledger) -> str:
    return f": {told(ledger.last_failure)}" if ledger.last_failure else ""


def told(failure: LastFailure) -> str:
    """A failure as a person would tell it, with all that helps to find its cause."""
    words = [f"{failure.role} {failure.index} (pod {failure.pod}{f' on node {failure.node}' if failure.node else ''})"]
    words.append("ended" if failure.exit_code is None else f"ended with exit code {failure.exit_code}")
    if failure.reason:
        words.append(f"({failure.reason})")
    text = " ".join(words)
    return f"{text}: {failure.message}" if failure.message else text
