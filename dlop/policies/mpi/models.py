"""Flags and field types of MPI jobs."""

from __future__ import annotations

from typing import Annotated

import pydantic

from dlop.api.flags import FrameworkFlags

# The value becomes part of a script, so only container names are accepted.
MainContainer = Annotated[str, pydantic.Field(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]


class MPIFlags(FrameworkFlags):
    """Flags of the operator for MPIJobs."""

    mpi_kubectl_delivery_image: str = pydantic.Field(
        default="",
        description="Image that delivers kubectl to the launchers of MPI jobs. Defaults to the image that Kubeflow publishes.",
    )
    mpi_launcher_runs_workloads: bool = pydantic.Field(
        default=True,
        description="Whether the launchers of MPIJobs of training.kubedl.io are in their host files, so that they run processes, too.",
    )
