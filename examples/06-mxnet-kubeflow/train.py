"""Linear regression with MXNet's parameter servers: finds w = (2.0, -3.4) and b = 4.2, which no worker can find alone.

Every replica of the job runs this file. In the scheduler and the servers, the import of MXNet serves until the workers have
finished, and then exits. Each worker has points along one axis only. The gradients for the weight of the other axis come from the
other worker through the server.
"""

import json
import os

TASK = json.loads(os.environ["MX_CONFIG"])["task"]
print(f"{TASK['type']} {TASK['index']}: looking for the scheduler at {os.environ['DMLC_PS_ROOT_URI']}", flush=True)

import mxnet as mx  # noqa: E402 - blocks in schedulers and servers
from mxnet import autograd, gluon, nd  # noqa: E402

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, BATCH, EPOCHS = 600, 20, 5
AXIS = TASK["index"] % len(WEIGHT)

store = mx.kv.create("dist_sync")


def log(text: str) -> None:
    print(f"worker {TASK['index']}: {text}", flush=True)


def own_points() -> gluon.data.ArrayDataset:
    """Points along the axis of this worker, and their values."""
    points = nd.zeros((POINTS, len(WEIGHT)))
    points[:, AXIS] = nd.random.normal(shape=POINTS)
    return gluon.data.ArrayDataset(points, nd.dot(points, nd.array(WEIGHT)) + BIAS + nd.random.normal(scale=NOISE, shape=POINTS))


def fit(points: gluon.data.ArrayDataset, *, kvstore: mx.kv.KVStore | None, workers: int) -> str:
    """Train on the points, with all workers that use the same store, and return the weights and the bias."""
    model = gluon.nn.Dense(1, in_units=len(WEIGHT), weight_initializer="zeros")
    model.initialize()
    loss_of = gluon.loss.L2Loss()
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.2}, kvstore=kvstore)
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for inputs, targets in gluon.data.DataLoader(points, batch_size=BATCH, shuffle=True):
            with autograd.record():
                loss = loss_of(model(inputs), targets)
            loss.backward()
            trainer.step(len(inputs) * workers)
            total += loss.sum().asscalar()
        if kvstore is not None:
            log(f"epoch {epoch} of {EPOCHS}, loss {total / len(points):.6f}")
    (first, second), bias = model.weight.data()[0].asnumpy(), model.bias.data().asscalar()
    return f"w = ({first:.2f}, {second:.2f}), b = {bias:.2f}"


mx.random.seed(1 + TASK["index"])
mine = own_points()
log(f"one of {store.num_workers}, with MXNet {mx.__version__}")
log(f"trained alone: {fit(mine, kvstore=None, workers=1)}")
log(f"learned {fit(mine, kvstore=store, workers=store.num_workers)}")
