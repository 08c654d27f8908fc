"""XGBoost's collective training: replicas learn to classify points, although each replica has the points of one class only.

The master runs XGBoost's tracker, through which the replicas find each other. Each replica contributes the statistics of its own
points to the trees, and all replicas end with the same model.
"""

import json
import os
import socket
import time
from typing import Any

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

MASTER, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
RANK, REPLICAS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
POINTS, ROUNDS = 300, 5
PARAMETERS = {"objective": "multi:softmax", "num_class": REPLICAS, "max_depth": 3, "nthread": 1}
TIMEOUT_SECONDS = 60.0


def log(text: str) -> None:
    print(f"rank {RANK}: {text}", flush=True)


def points_of(label: int) -> xgboost.DMatrix:
    """The points of one class: a cluster whose centre lies on a circle."""
    angle = 2 * np.pi * label / REPLICAS
    centre = 5 * np.array([np.cos(angle), np.sin(angle)])
    points = np.random.default_rng(label).normal(centre, size=(POINTS, 2))
    return xgboost.DMatrix(points, label=np.full(POINTS, label))


def accuracy(model: xgboost.Booster) -> str:
    """The number of correctly classified points of all classes."""
    correct = sum(int((model.predict(points_of(label)) == label).sum()) for label in range(REPLICAS))
    return f"{correct} of {REPLICAS * POINTS} points correct"


def send_tracker_arguments(arguments: dict[str, Any]) -> None:
    """Send the address of the tracker to every worker."""
    with socket.create_server((MASTER, PORT)) as server:
        for _ in range(REPLICAS - 1):
            worker, _ = server.accept()
            with worker:
                worker.sendall(json.dumps(arguments).encode())


def receive_tracker_arguments() -> dict[str, Any]:
    """Receive the address of the tracker from the master. Retries, because the replicas start in any order."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            with socket.create_connection((MASTER, PORT), timeout=TIMEOUT_SECONDS) as master, master.makefile() as stream:
                return json.load(stream)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def train(tracker_arguments: dict[str, Any]) -> None:
    """Train a model on the points of all replicas."""
    with collective.CommunicatorContext(**tracker_arguments, dmlc_task_id=str(RANK)):
        log(f"one of {collective.get_world_size()}, with XGBoost {xgboost.__version__}")
        log(f"trained together: {accuracy(xgboost.train(PARAMETERS, points_of(RANK), ROUNDS))}")


log(f"trained alone: {accuracy(xgboost.train(PARAMETERS, points_of(RANK), ROUNDS))}")
if RANK == 0:
    tracker = RabitTracker(n_workers=REPLICAS, host_ip=socket.gethostbyname(MASTER), sortby="task")
    tracker.start()
    send_tracker_arguments(tracker.worker_args())
    train(tracker.worker_args())
    tracker.wait_for()  # the job finishes with the master, so the master exits last
else:
    train(receive_tracker_arguments())
