"""The numbers that examples print, which only replicas that work together can know."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """What an example comes to: said in these words, by this many replicas."""

    words: str
    """A pattern with a group for each value."""
    values: tuple[float, ...]
    times: int

    def found_in(self, output: str) -> list[tuple[float, ...]]:
        return [tuple(map(float, match.groups())) for match in re.finditer(self.words, output)]


def _learned(*, workers: int) -> Number:
    """The weights and the bias that the points of the linear regressions were made with."""
    return Number(r"learned w = \((\S+), (\S+)\), b = (\S+)", (2.0, -3.4, 4.2), workers)


NUMBERS = {
    "01-mxnet-linear/job.yaml": _learned(workers=1),
    "01-mxnet-linear/job-2x3.yaml": _learned(workers=3),
    "02-mxnet-poc/job.yaml": _learned(workers=1),
    "03-recovery/job.yaml": _learned(workers=2),
    "04-custom-framework/job.yaml": Number(r"all together have (\d+)", (14,), times=3),
    "06-mxnet-kubeflow/job.yaml": _learned(workers=2),
    "07-jax/job.yaml": _learned(workers=2),
    "08-xgboost/job.yaml": Number(r"together they have (\d+) of (\d+) points right", (900, 900), times=3),
    "09-tensorflow/job.yaml": Number(r"worker \d: learned w = \((\S+), (\S+)\)", (1, 2), times=2),
    "09-tensorflow/job-ps.yaml": Number(r"(\d) servers hold w = \((\S+), (\S+)\)", (2, 2.0, -3.4), times=1),
    "10-pytorch/job.yaml": Number(r"learned w = \((\S+), (\S+), (\S+), (\S+)\), and all together have (\d+)", (1, 2, 3, 4, 30), times=4),
    "10-pytorch/job-elastic.yaml": Number(r"learned w = \((\S+), (\S+), (\S+)\), and all together have (\d+)", (1, 2, 3, 14), times=3),
    "11-mpi/job.yaml": Number(r"4 processes on (\d) hosts: pi = (\S+)", (2, math.pi), times=1),
}
