"""Jobs that make no sense: what the official client says of them is what the server has told it.

`python -m tests.local.official_client.refused NAMESPACE` plays it.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from kubeflow.training import TrainingClient

from tests.local.official_client.acting import refusal
from tests.local.official_client.jobs import job


def main(namespace: str) -> None:
    """Play it."""
    training = TrainingClient(namespace=namespace)
    refused = {what: refusal(partial(training.create_job, wrong)) for what, wrong in _mistakes().items()}
    print(json.dumps({**refused, "listed": [each.metadata.name for each in training.list_jobs()]}))


def _mistakes() -> dict[str, Any]:
    """One job a mistake."""
    container, masters, name = (job("PyTorchJob", "wrong", "true") for _ in range(3))
    container.spec.pytorch_replica_specs["Worker"].template.spec.containers[0].name = "torch"
    masters.spec.pytorch_replica_specs["Master"].replicas = 2
    name.metadata.name = "1st"
    return {"container": container, "masters": masters, "name": name}


if __name__ == "__main__":
    main(*sys.argv[1:])
