"""Invalid jobs. The official client reports the errors of the server.

Run with `python -m tests.local.official_client.invalid_jobs NAMESPACE`.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from kubeflow.training import TrainingClient

from tests.local.official_client.helpers import error_message
from tests.local.official_client.jobs import job


def main(namespace: str) -> None:
    training = TrainingClient(namespace=namespace)
    errors = {title: error_message(partial(training.create_job, invalid)) for title, invalid in _invalid_jobs().items()}
    print(json.dumps({**errors, "listed": [item.metadata.name for item in training.list_jobs()]}))


def _invalid_jobs() -> dict[str, Any]:
    container, masters, name = (job("PyTorchJob", "invalid", "true") for _ in range(3))
    container.spec.pytorch_replica_specs["Worker"].template.spec.containers[0].name = "torch"
    masters.spec.pytorch_replica_specs["Master"].replicas = 2
    name.metadata.name = "1st"
    return {"container": container, "masters": masters, "name": name}


if __name__ == "__main__":
    main(*sys.argv[1:])
