"""Names, labels and ports that the master of DLRover relies on."""

from __future__ import annotations

from collections.abc import Mapping

MASTER = "dlrover-master"
WORKER = "worker"
PS = "ps"
MEMBER_ROLES = (PS, "chief", WORKER, "evaluator")
"""The roles that the master manages, in the order in which a scale plan is read."""
CONTAINER = "main"
"""The container that runs the master or the training program, if a pod has several."""
MASTER_PORT = 50001
PORTS = {PS: 2222}
OTHER_PORT = 3333
"""The port of all roles but parameter servers."""

NAME_LABEL = "elasticjob.dlrover/name"
TYPE_LABEL = "elasticjob.dlrover/replica-type"
INDEX_LABEL = "elasticjob.dlrover/replica-index"
RANK_LABEL = "elasticjob.dlrover/rank-index"
RELAUNCH_LABEL = "elasticjob.dlrover/relaunch-count"
RESTART_COUNT_LABEL = "restart-count"
MASTER_APP = {"app.kubernetes.io/name": "elasticjob"}
MEMBER_APP = {"app": "dlrover"}
SCALE_TYPE_LABEL = "scale-type"
PLATFORM_ANNOTATION = "dlop.dev/elasticjob-platform"
"""On an ElasticJob: who creates the members. See `Platform`."""


def master_service(job: str) -> str:
    """The name of the service of the master, which outlives the master."""
    return f"elasticjob-{job}-dlrover-master"


def member_name(job: str, role: str, number: int) -> str:
    """The name of a member by its ID, and the name of its service by its rank."""
    return f"{job}-edljob-{role}-{number}"


def member_port(role: str) -> int:
    return PORTS.get(role, OTHER_PORT)


def label_number(labels: Mapping[str, str], name: str) -> int | None:
    """The number in a label; None if it is missing or malformed."""
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
