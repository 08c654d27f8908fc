"""Ports of the host network. They are stored in the record before any pod is created, and the job keeps them until it ends."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from dlop.api.constants import Reason
from dlop.api.record import AssignedPorts, Blocked
from dlop.kube.timestamps import format_time
from dlop.reconcile.context import ReconcileContext


def with_host_ports(context: ReconcileContext) -> ReconcileContext:
    """The context of a job with the ports that it is assigned in this pass. The same context if it needs none or has them."""
    first = context.snapshot.assigned_host_port
    if not context.awaits_host_ports or first is None:
        return context
    record = msgspec.structs.replace(context.stored.record, host_ports=AssignedPorts(first, context.spec.host_ports))
    return replace(context.with_record(record), has_new_ports=True)


def blocked_by_host_ports(context: ReconcileContext) -> Blocked:
    """Why the pods of a job that waits for ports are not created. The message does not change while it waits."""
    message = (
        f"the job needs {context.spec.host_ports} consecutive ports of the host network, and all are assigned to other jobs: "
        "wait until one has finished, or start the operator with a larger --host-port-range"
    )
    previous = context.stored.record.blocked
    if previous is not None and previous.message == message:
        return previous
    return Blocked(object="operator", reason=Reason.NO_HOST_PORTS, message=message, since=format_time(context.now))
