"""The default names, labels and host names."""

from __future__ import annotations

import pytest

from dlop import Options, RoleSpec
from dlop.policies import Naming
from tests.unit.job.jobs import PairJob, make, pair_spec

NAMING: Naming[PairJob] = Naming()


class Serviceless(Naming[PairJob]):
    def service_name(self, job: PairJob, role: RoleSpec, index: int) -> str | None:
        return None


def test_names_and_labels_identify_a_replica() -> None:
    job = make(PairJob, pair_spec())
    follower = job.spec.roles[1]
    assert NAMING.pod_name(job, follower, 1) == NAMING.service_name(job, follower, 1) == "train-follower-1"
    role_labels = {"dlop.dev/job-name": "train", "dlop.dev/replica-type": "follower"}
    assert NAMING.role_labels(job, follower) == role_labels
    assert NAMING.labels(job, follower, 1) == NAMING.service_labels(job, follower, 1) == {**role_labels, "dlop.dev/replica-index": "1"}


@pytest.mark.parametrize(
    ("naming", "domain", "expected"),
    [
        (NAMING, "", "train-leader-0"),
        (NAMING, "cluster.local", "train-leader-0.lab.svc.cluster.local"),
        (Serviceless(), "cluster.local", "train-leader-0"),
    ],
)
def test_the_host_is_the_service_or_without_a_service_the_pod(naming: Naming[PairJob], domain: str, expected: str) -> None:
    job = make(PairJob, pair_spec(), options=Options(cluster_domain=domain))
    assert naming.host(job, job.spec.roles[0], 0) == expected
