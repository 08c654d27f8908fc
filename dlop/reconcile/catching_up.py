"""A record that is behind the pods: they are of attempts that it does not know of.

It may be an old copy of a record that is stored, in a cache that lags. Or there is no other: somebody has put back an older
status, or wiped it out. Which of them it is cannot be seen. So the latest attempt is written down and nothing else is done:
what is no copy of the stored status cannot be written over it, and a pass that can go on is one that has seen the write.
"""

from __future__ import annotations

import msgspec

from dlop.api.record import Record, plain
from dlop.api.spec import RestartScope
from dlop.kube.errors import JsonObject
from dlop.reconcile.context import Case
from dlop.reconcile.record_builder import Ledger
from dlop.reconcile.times import written


def with_latest_attempt(case: Case) -> JsonObject:
    """The stored status, with the latest attempt that there are pods of in its record."""
    return {**case.job.stored_status, "dlop": plain(_caught_up(case))}


def _caught_up(case: Case) -> Record:
    """What was done in earlier attempts no longer counts. What another operator has written of the job goes into the record."""
    ledger, stored = Ledger(case.stored.record, case.spec), case.stored
    if case.policy.restart_scope is RestartScope.JOB:
        ledger.attempt += max(case.missed_attempts.values())
        ledger.forget_all()
    else:
        for role, attempts in case.missed_attempts.items():
            ledger.role_attempts[role] = ledger.role_attempts.get(role, 0) + attempts
            ledger.forget(role)
    return msgspec.structs.replace(
        ledger.close(living=(pod.metadata.uid for pod in case.snapshot.pods)),
        phase=stored.phase.value if stored.phase else "",
        started_at="" if stored.started_at is None else written(stored.started_at),
    )
