"""Jobs whose replicas are told how many there are.

When such a job is scaled while it runs, those that run know an old number and those that come a new one: they would never agree.
So all of them are begun anew, as one attempt of the whole job. That is nobody's failure, and counts as none.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import SIZE_ANNOTATION
from dlop.api.progress import Progress, ReplicaState
from dlop.kube.objects import Pod
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.pod_state import has_begun
from dlop.reconcile.record_builder import RecordBuilder

_GOES_ON = (ReplicaState.PENDING, ReplicaState.RUNNING, ReplicaState.SUCCEEDED)


def previous_size(case: ReconcileContext, progress: Progress) -> str:
    """What replicas that have begun were told, if that is not true any more; else empty. Those that have not are made anew anyway."""
    size = case.job.size if case.is_edited else ""
    return next((told for told in map(_told, _begun(progress)) if told not in ("", size)), "") if size else ""


def restart_for_resize(ledger: RecordBuilder) -> None:
    """Give up every replica: the pods are deleted when this has been stored, and created when they are gone."""
    ledger.attempt += 1 + max(ledger.role_attempts.values(), default=0)
    ledger.role_attempts.clear()
    ledger.retries.clear()
    ledger.forget_all()


def _begun(progress: Progress) -> Iterator[Pod]:
    """The pods that keep what they were made of: also those that only wait for another container."""
    for role in progress.roles:
        for replica in role.replicas:
            if replica.pod is not None and replica.state in _GOES_ON and has_begun(replica.pod, role.spec):
                yield replica.pod


def _told(pod: Pod) -> str:
    """A pod that does not say it was made by somebody else, and may know anything."""
    return pod.metadata.annotations.get(SIZE_ANNOTATION, "")
