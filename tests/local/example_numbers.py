"""The results that the examples print. Most of them can be computed only by all replicas together."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class ExpectedResult:
    """The values that an example prints."""

    pattern: str
    """A regular expression with a group for each value."""
    values: tuple[float, ...]
    times: int
    """The number of replicas that print the values."""

    def parse_output(self, output: str) -> list[tuple[float, ...]]:
        return [tuple(map(float, match.groups())) for match in re.finditer(self.pattern, output)]


def _learned(*, workers: int) -> ExpectedResult:
    """The weights and the bias of the data of the linear regressions."""
    return ExpectedResult(r"learned w = \((\S+), (\S+)\), b = (\S+)", (2.0, -3.4, 4.2), workers)


_CLASSIFIED = ExpectedResult(r"trained together: (\d+) of (\d+) points correct", (900, 900), times=3)
EXPECTED_RESULTS = {
    "01-mxnet-linear/job.yaml": _learned(workers=1),
    "01-mxnet-linear/job-2x3.yaml": _learned(workers=3),
    "02-mxnet-poc/job.yaml": _learned(workers=1),
    "03-recovery/job.yaml": _learned(workers=2),
    "04-custom-framework/job.yaml": ExpectedResult(r"sum of all peers: (\d+)", (14,), times=3),
    "06-mxnet-kubeflow/job.yaml": _learned(workers=2),
    "07-jax/job.yaml": _learned(workers=2),
    "08-xgboost/job.yaml": _CLASSIFIED,
    "09-tensorflow/job.yaml": ExpectedResult(r"worker \d: learned w = \((\S+), (\S+)\)", (1, 2), times=2),
    "09-tensorflow/job-ps.yaml": ExpectedResult(r"(\d) servers hold w = \((\S+), (\S+)\)", (2, 2.0, -3.4), times=1),
    "10-pytorch/job.yaml": ExpectedResult(
        r"learned w = \((\S+), (\S+), (\S+), (\S+)\), sum of all ranks: (\d+)", (1, 2, 3, 4, 30), times=4
    ),
    "10-pytorch/job-elastic.yaml": ExpectedResult(r"learned w = \((\S+), (\S+), (\S+)\), sum of all ranks: (\d+)", (1, 2, 3, 14), times=3),
    "11-mpi/job.yaml": ExpectedResult(r"4 processes on (\d) hosts: pi = (\S+)", (2, math.pi), times=1),
    "12-paddle-collective/job.yaml": _learned(workers=2),
    "13-paddle-parameter-servers/job.yaml": _learned(workers=2),
    "14-elastic-dlrover/job.yaml": _learned(workers=2),
    "14-elastic-dlrover/job-pytorch.yaml": _learned(workers=2),
    "15-kubedl/tfjob.yaml": ExpectedResult(r"worker \d of .*: the sum at \S+ is (\d+)", (3,), times=2),
    "15-kubedl/pytorchjob.yaml": ExpectedResult(r"rank \d of (\d): the sum at \S+ is (\d+)", (3, 6), times=3),
    "15-kubedl/xgboostjob.yaml": _CLASSIFIED,
    "15-kubedl/xdljob.yaml": ExpectedResult(r"worker \d of (\d): the sums of 2 servers are \[(\d+), (\d+)\]", (3, 6, 6), times=3),
    "15-kubedl/marsjob.yaml": ExpectedResult(r"worker \d with (\d) CPU: \d+ of the sum (\d+)", (1, 4950), times=2),
    "15-kubedl/elasticdljob.yaml": ExpectedResult(r"the sum of (\d) workers is (\d+)", (2, 3), times=1),
    "15-kubedl/mpijob.yaml": ExpectedResult(r"6 processes on (\d) hosts: pi = (\S+)", (3, math.pi), times=1),
    "16-job-features/start-order.yaml": ExpectedResult(r"server: (\d) workers have connected", (2,), times=1),
    "16-job-features/code-sync.yaml": ExpectedResult(r"process \d of (\d) runs /code/train.py", (2,), times=2),
    "16-job-features/host-network.yaml": ExpectedResult(r"the master is at host-network-master-0:(\d+)", (36000,), times=3),
    "16-job-features/spot.yaml": ExpectedResult(r"process (\d): on-demand", (0,), times=1),
}
