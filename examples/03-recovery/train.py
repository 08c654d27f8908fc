"""The linear regression of 01-mxnet-linear, with a checkpoint after each epoch, and an accident in between.

Gradients are added up over all workers, so a worker that is lost leaves the others waiting: the whole job is started again,
and goes on after the last epoch that was finished. `ACCIDENT` says what happens to worker pod 1 in epoch 3, the first time.
"""

import os
import signal
from pathlib import Path

os.environ["PS_VERBOSE"] = "0"  # with 2, which the operator sets, every message between replicas is a line of the log

import mxnet as mx
from mxnet import autograd, gluon, nd

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, BATCH, EPOCHS = 1200, 20, 6
CHECKPOINT = Path(os.environ["CHECKPOINT"])

store = mx.kv.create("dist_sync")


def say(text: str) -> None:
    """Tell it to whoever reads the log."""
    print(f"rank {store.rank}: {text}", flush=True)


def have_an_accident() -> None:
    """End here and now, without a word to the others."""
    if os.environ["ACCIDENT"] == "kill":
        say("is killed")
        os.kill(os.getpid(), signal.SIGKILL)
    say("something is wrong here")
    os._exit(1)  # at an ordinary exit, MXNet waits for the other workers to be done


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
say(f"goes on after epoch {done}" if done else "begins")

loss_of = gluon.loss.L2Loss()
trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.05 * store.num_workers}, kvstore=store)


def train(inputs: nd.NDArray, wanted: nd.NDArray) -> None:
    """One step, which ends when the gradients of all workers are in."""
    with autograd.record():
        loss = loss_of(model(inputs), wanted)
    loss.backward()
    trainer.step(len(inputs) * store.num_workers)
    # Gradients are sent in the background: wait, so that a worker that is lost is lost between two steps.
    nd.waitall()


def save(epoch: int) -> None:
    """Replace the checkpoint in one go: a half-written one is never read."""
    state = {"epoch": nd.array([epoch]), "weight": model.weight.data(), "bias": model.bias.data()}
    nd.save(f"{CHECKPOINT}.new", state)
    Path(f"{CHECKPOINT}.new").replace(CHECKPOINT)


for epoch in range(done + 1, EPOCHS + 1):
    for step, (inputs, wanted) in enumerate(gluon.data.DataLoader(share, batch_size=BATCH, shuffle=True)):
        if not done and (epoch, step) == (3, 10) and os.environ["POD_INDEX"] == "1":
            have_an_accident()
        train(inputs, wanted)
    if store.rank == 0:
        save(epoch)
    say(f"finished epoch {epoch} of {EPOCHS}")

weight, bias = model.weight.data()[0].asnumpy(), model.bias.data().asscalar()
say(f"learned w = ({weight[0]:.2f}, {weight[1]:.2f}), b = {bias:.2f}")
if store.rank == 0:
    CHECKPOINT.unlink()
