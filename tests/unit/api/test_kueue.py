"""What the operator writes into the status of a Workload."""

from __future__ import annotations

from dlop.api.kueue import released_status
from dlop.kube.objects import Workload, WorkloadStatus


def test_a_workload_that_is_evicted_while_it_recovers_waits_for_its_next_start() -> None:
    """With the reason WaitForRecovery, Kueue would count the time of the next start from the loss of the pod, and evict it at once."""
    conditions = (
        {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""},
        {"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""},
        {"type": "PodsReady", "status": "False", "reason": "WaitForRecovery", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", "message": "too slow"},
    )
    status = released_status(Workload(status=WorkloadStatus(conditions=conditions)), now=0.0)
    assert status["admission"] is None
    assert {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]} == {
        "QuotaReserved": ("False", "Pending"),
        "Admitted": ("False", "NoReservation"),
        "PodsReady": ("False", "WaitForStart"),
        "Evicted": ("True", "PodsReadyTimeout"),
        "Requeued": ("False", "PodsReadyTimeout"),
    }
