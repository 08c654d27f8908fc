"""Environment of ps-lite, the parameter server of MXNet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlop.job import DLJob
    from dlop.replica import Replica


def ps_lite_variables(job: DLJob, replica: Replica, *, scheduler: str, server: str, worker: str) -> dict[str, str]:
    """Variables of a replica. The last three arguments are the names of the roles."""
    has_scheduler = job.spec.role(scheduler) is not None
    return {
        "DMLC_ROLE": replica.role.lower(),
        "DMLC_PS_ROOT_URI": job.host(scheduler),
        "DMLC_PS_ROOT_PORT": str(job.port(scheduler)) if has_scheduler else "0",
        "DMLC_NUM_SERVER": str(job.replicas(server)),
        "DMLC_NUM_WORKER": str(job.replicas(worker)),
        # Without it, the scheduler of newer MXNet versions tries to bind to the name of its service, which is not a local address.
        "DMLC_USE_KUBERNETES": "1",
    }
