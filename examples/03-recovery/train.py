"""The linear regression of 01-mxnet-linear with a checkpoint after each epoch and a simulated failure.

Gradients are summed over all workers, so the other workers block when one is lost. The whole job is restarted and resumes after
the last finished epoch. `FAILURE` selects the failure of the pod of worker 1 in epoch 3 of the first run.
"""

import os
import signal
from pathlib import Path

os.environ["PS_VERBOSE"] = "0"  # the operator sets 2, which logs every message between replicas

import mxnet as mx
from mxnet import autograd, gluon, nd

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, BATCH, EPOCHS = 1200, 20, 6
CHECKPOINT = Path(os.environ["CHECKPOINT"])

store = mx.kv.create("dist_sync")


def log(text: str) -> None:
    print(f"rank {store.rank}: {text}", flush=True)


def simulate_failure() -> None:
    """Exit at once, without a message to the other replicas."""
    if os.environ["FAILURE"] == "kill":
        log("sending SIGKILL to itself")
        os.kill(os.getpid(), signal.SIGKILL)
    log("exiting with code 1")
    os._exit(1)  # at a normal exit, MXNet waits for the other workers


mx.random.seed(1)
points = nd.random.normal(shape=(POINTS, len(WEIGHT)))
values = nd.dot(points, nd.array(WEIGHT)) + BIAS + nd.random.normal(scale=NOISE, shape=POINTS)
mine = slice(store.rank, None, store.num_workers)
share = gluon.data.ArrayDataset(points[mine], values[mine])

model = gluon.nn.Dense(1, in_units=len(WEIGHT))
model.initialize(mx.init.Normal(sigma=0.01))
done = 0
if CHECKPOINT.exists():
    saved = nd.load(str(CHECKPOINT))
    done = int(saved["epoch"].asscalar())
    model.weight.set_data(saved["weight"])
    model.bias.set_data(saved["bias"])
log(f"resuming after epoch {done}" if done else "starting")

loss_of = gluon.loss.L2Loss()
trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.05 * store.num_workers}, kvstore=store)


def train(inputs: nd.NDArray, targets: nd.NDArray) -> None:
    """One step. Returns when the gradients of all workers are summed."""
    with autograd.record():
        loss = loss_of(model(inputs), targets)
    loss.backward()
    trainer.step(len(inputs) * store.num_workers)
    # Gradients are sent asynchronously. Wait, so that the failure happens between two steps.
    nd.waitall()


def save(epoch: int) -> None:
    """Replace the checkpoint atomically."""
    state = {"epoch": nd.array([epoch]), "weight": model.weight.data(), "bias": model.bias.data()}
    nd.save(f"{CHECKPOINT}.new", state)
    Path(f"{CHECKPOINT}.new").replace(CHECKPOINT)


for epoch in range(done + 1, EPOCHS + 1):
    for step, (inputs, targets) in enumerate(gluon.data.DataLoader(share, batch_size=BATCH, shuffle=True)):
        if not done and (epoch, step) == (3, 10) and os.environ["POD_INDEX"] == "1":
            simulate_failure()
        train(inputs, targets)
    if store.rank == 0:
        save(epoch)
    log(f"finished epoch {epoch} of {EPOCHS}")

weight, bias = model.weight.data()[0].asnumpy(), model.bias.data().asscalar()
log(f"learned w = ({weight[0]:.2f}, {weight[1]:.2f}), b = {bias:.2f}")
if store.rank == 0:
    CHECKPOINT.unlink()
