"""XGBoost's collective training: replicas that learn to tell kinds of points apart, of which each has seen one kind only.

They find each other through a tracker, which runs beside the training of the master. From then on all are equal: each adds what
its own points say to the statistics from which the trees are grown, and all end with the same trees.
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
RULES = {"objective": "multi:softmax", "num_class": REPLICAS, "max_depth": 3, "nthread": 1}
PATIENCE_SECONDS = 60.0


def say(text: str) -> None:
    """Tell it to whoever reads the log."""
    print(f"rank {RANK}: {text}", flush=True)


def points_of(kind: int) -> xgboost.DMatrix:
    """Points of one kind: a cloud with a place of its own on a circle."""
    angle = 2 * np.pi * kind / REPLICAS
    middle = 5 * np.array([np.cos(angle), np.sin(angle)])
    cloud = np.random.default_rng(kind).normal(middle, size=(POINTS, 2))
    return xgboost.DMatrix(cloud, label=np.full(POINTS, kind))


def right(model: xgboost.Booster) -> str:
    """How many of the points of all kinds the model takes for what they are."""
    found = sum(int((model.predict(points_of(kind)) == kind).sum()) for kind in range(REPLICAS))
    return f"{found} of {REPLICAS * POINTS} points right"


def invite(meeting: dict[str, Any]) -> None:
    """Tell every worker where to meet."""
    with socket.create_server((MASTER, PORT)) as door:
        for _ in range(REPLICAS - 1):
            worker, _ = door.accept()
            with worker:
                worker.sendall(json.dumps(meeting).encode())


def invited() -> dict[str, Any]:
    """Where to meet, as soon as the master is there to tell: nobody knows who starts first."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with socket.create_connection((MASTER, PORT), timeout=PATIENCE_SECONDS) as master, master.makefile() as said:
                return json.load(said)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def train(meeting: dict[str, Any]) -> None:
    """Make a model of all points, of which this replica has only its own."""
    with collective.CommunicatorContext(**meeting, dmlc_task_id=str(RANK)):
        say(f"one of {collective.get_world_size()}, with XGBoost {xgboost.__version__}")
        say(f"together they have {right(xgboost.train(RULES, points_of(RANK), ROUNDS))}")


say(f"on its own it would have {right(xgboost.train(RULES, points_of(RANK), ROUNDS))}")
if RANK == 0:
    tracker = RabitTracker(n_workers=REPLICAS, host_ip=socket.gethostbyname(MASTER), sortby="task")
    tracker.start()
    invite(tracker.worker_args())
    train(tracker.worker_args())
    tracker.wait_for()  # the job is over when the master is: it leaves as the last one
else:
    train(invited())
