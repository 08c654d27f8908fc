"""What is there and no longer asked for: replicas beyond the asked number, roles that were taken out of the spec."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.kube.objects import Pod, Service
from dlop.kube.resources import SERVICES
from dlop.reconcile.context import Case
from dlop.reconcile.record_builder import Ledger


def surplus_pods(case: Case) -> tuple[Pod, ...]:
    """Pods that the spec does not ask for. They go when the record has given them up: their end is not a disruption."""
    return case.surplus if case.surplus and _are_given_up(case) else ()


def surplus_services(case: Case) -> Iterator[Service]:
    """Services that neither a replica nor the kind asks for."""
    others = {creation.name for creation in case.other_objects if creation.resource == SERVICES}
    for service in case.snapshot.services:
        if service.metadata.name not in case.service_names and service.metadata.name not in others:
            yield service


def _are_given_up(case: Case) -> bool:
    record = case.stored.record
    return Ledger(record, case.spec).close(living=()).started == record.started
