"""Linear regression on elastic workers, which find each other through the master of DLRover.

The workers join a rendezvous of the master, and exchange gradients through its key-value store. When a worker is lost or a new one waits,
they meet again and continue from the last checkpoint. When the master is lost, they wait for the next one.
"""

import contextlib
import json
import math
import os
import threading
import time
from pathlib import Path

from dlrover.python.elastic_agent.master_client import build_master_client

RENDEZVOUS = "elastic-training"
STEPS = int(os.environ.get("STEPS", "100"))
SECONDS_PER_STEP = float(os.environ.get("SECONDS_PER_STEP", "0.3"))
RANK = int(os.environ["NODE_RANK"])
WORKERS = int(os.environ["NODE_NUM"])
MINIMUM = int(os.environ.get("MINIMUM", WORKERS))
CHECKPOINT = Path(os.environ["CHECKPOINTS"]) / f"{os.environ['JOB_UID']}.json"
CRASH_MARKER = CHECKPOINT.with_suffix(".crashed")
CRASH_STEP = int(os.environ.get("CRASH_STEP", "0"))
TRUE_WEIGHTS, TRUE_BIAS = (2.0, -3.4), 4.2


class LostPeerError(Exception):
    """A peer has not sent its gradient, or a new one waits."""


def connect():
    """A client of the master, which may be starting."""
    while True:
        master = build_master_client()
        if master is not None:
            return master
        time.sleep(1)


def call(function, *arguments, **named):
    """Call the master until it answers. It may be starting, or be replaced by a new one."""
    while True:
        with contextlib.suppress(Exception):
            return function(*arguments, **named)
        time.sleep(1)


def say(text):
    print(f"worker {RANK}: {text}", flush=True)


def load_checkpoint():
    with contextlib.suppress(FileNotFoundError):
        state = json.loads(CHECKPOINT.read_text())
        return state["step"], state["weights"]
    return 0, [0.0, 0.0, 0.0]


def save_checkpoint(step, weights):
    partial = CHECKPOINT.with_suffix(".partial")
    partial.write_text(json.dumps({"step": step, "weights": weights}))
    partial.rename(CHECKPOINT)


def meet(master):
    """The number of the rendezvous, and the ranks of the workers that take part in it."""
    call(master.report_rdzv_params, MINIMUM, WORKERS, 3, 1, 600)
    while True:
        call(master.join_rendezvous, RANK, 1, rdzv_name=RENDEZVOUS)
        # A new master does not know who waited for the last one.
        rejoin_at = time.monotonic() + 10
        while time.monotonic() < rejoin_at:
            number, _, world = call(master.get_comm_world, RENDEZVOUS, RANK)
            if RANK in world:
                return number, sorted(world)
            time.sleep(0.5)


def gradient(step, weights, ranks):
    """Loss and gradient for this worker's share of the points of a step."""
    total, loss, count = [0.0, 0.0, 0.0], 0.0, 0
    for number in range(32):
        x = (math.sin(step + number), math.cos(2 * step + 3 * number))
        if number % len(ranks) != ranks.index(RANK):
            continue
        error = weights[0] * x[0] + weights[1] * x[1] + weights[2] - (TRUE_WEIGHTS[0] * x[0] + TRUE_WEIGHTS[1] * x[1] + TRUE_BIAS)
        loss, count = loss + error * error, count + 1
        total = [total[0] + error * x[0], total[1] + error * x[1], total[2] + error]
    return {"loss": loss, "count": count, "gradient": total}


def exchange(master, keys, ranks, own, sent):
    """The contributions of all workers. `sent` has the last own ones: a new master does not have them, and a peer may be a step behind."""
    sent[:] = [*sent[-1:], (f"{keys}/{RANK}", json.dumps(own).encode())]
    contributions, deadline = {RANK: own}, time.monotonic() + 120
    while len(contributions) < len(ranks):
        for key, value in sent:
            call(master.kv_store_set, key, value)
        for rank in ranks:
            value = b"" if rank in contributions else call(master.kv_store_get, f"{keys}/{rank}")
            if value:
                contributions[rank] = json.loads(value)
        if len(contributions) < len(ranks):
            if time.monotonic() > deadline or call(master.num_nodes_waiting, RENDEZVOUS) > 0:
                raise LostPeerError
            time.sleep(0.1)
    return list(contributions.values())


def train(master, ranks, number, reported):
    """Train until the last step, or until the workers must meet again. `reported` are the steps whose loss was printed."""
    step, weights = load_checkpoint()
    sent = []
    action = "continuing from the checkpoint" if step else "starting"
    say(f"{action} with {len(ranks)} workers")
    while step < STEPS:
        parts = exchange(master, f"{number}/{step}", ranks, gradient(step, weights, ranks), sent)
        count = sum(part["count"] for part in parts)
        loss = sum(part["loss"] for part in parts) / count
        total = [sum(values) / count for values in zip(*(part["gradient"] for part in parts), strict=True)]
        weights = [weight - 0.2 * slope for weight, slope in zip(weights, total, strict=True)]
        step += 1
        if ranks[0] == RANK:
            save_checkpoint(step, weights)
        if step % 20 == 0 and step not in reported:
            reported.add(step)
            say(f"step {step} of {STEPS}, loss {loss:.6f}")
        if step == CRASH_STEP and RANK == WORKERS - 1 and not CRASH_MARKER.exists():
            CRASH_MARKER.touch()
            say("sending SIGKILL to itself")
            os.kill(os.getpid(), 9)
        time.sleep(SECONDS_PER_STEP)
    say(f"learned w = ({weights[0]:.2f}, {weights[1]:.2f}), b = {weights[2]:.2f}")


def send_heartbeats(master):
    while True:
        with contextlib.suppress(Exception):
            master.report_heart_beat(int(time.time()))
        time.sleep(15)


def main():
    master = connect()
    threading.Thread(target=send_heartbeats, args=(master,), daemon=True).start()
    reported = set()
    while True:
        number, ranks = meet(master)
        try:
            train(master, ranks, number, reported)
        except LostPeerError:
            say("meeting the other workers again")
        else:
            break
    call(master.report_succeeded_exited)


if __name__ == "__main__":
    main()
