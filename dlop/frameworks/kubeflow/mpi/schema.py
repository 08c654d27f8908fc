"""What the spec of an MPIJob looks like, for its CRD and for the operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import pydantic

from dlop import CleanPodPolicy, JobSpec, ManifestField
from dlop.api.schema import rule
from dlop.api.spec_models import CleaningWord, Count
from dlop.frameworks.kubeflow.schema import KubeflowSpec, rules_of_spec, with_roles

REPLICA_SPECS = "mpiReplicaSpecs"
_LAUNCHER = f"self.{REPLICA_SPECS}['Launcher']"
# It becomes part of a script: nothing but the name of a container may stand there.
_ContainerName = Annotated[str, pydantic.ManifestField(pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=63)]


class MPIJobModel(KubeflowSpec):
    """What an MPIJob asks for."""

    model_config = rules_of_spec(
        rule(
            f"'Launcher' in self.{REPLICA_SPECS}", "must be present", field_path=f".{REPLICA_SPECS}.Launcher", reason="FieldValueRequired"
        ),
        rule(
            f"!('Launcher' in self.{REPLICA_SPECS}) || !has({_LAUNCHER}.replicas) || {_LAUNCHER}.replicas == 1",
            "must be 1",
            field_path=f".{REPLICA_SPECS}.Launcher.replicas",
            reason="FieldValueForbidden",
        ),
    )

    slots_per_worker: Count | None = None
    """How many processes a worker takes. One, when left out."""
    clean_pod_policy: CleaningWord | None = None
    """Which pods of a finished job are deleted, where the run policy does not say."""
    main_container: _ContainerName | None = None
    """The container of a worker in which commands run. The first one, when left out."""


def with_older_policy(found: JobSpec, spec: ManifestField) -> JobSpec:
    """What a spec says, with the policy for pods that stands at its top where the run policy has none."""
    older = spec.get("cleanPodPolicy").choice(CleanPodPolicy, found.run_policy.clean_pod_policy)
    if not spec.get("runPolicy").get("cleanPodPolicy").is_absent:
        return found
    return replace(found, run_policy=replace(found.run_policy, clean_pod_policy=older))


SPEC_MODEL = with_roles(MPIJobModel, field=REPLICA_SPECS, names=("Launcher", "Worker"), container="")
"""With the roles."""
