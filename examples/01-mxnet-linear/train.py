"""Linear regression with MXNet's parameter servers: recovers w = (2.0, -3.4) and b = 4.2 from noisy points.

Every replica of the job runs this file. In the scheduler and the servers, the import of MXNet serves until the workers have
finished, and then exits. Only the workers execute the rest, each with its share of the points.
"""

import os

os.environ["PS_VERBOSE"] = "0"  # the operator sets 2, which logs every message between replicas
print(f"{os.environ['DMLC_ROLE']}: looking for the scheduler at {os.environ['DMLC_PS_ROOT_URI']}", flush=True)

import mxnet as mx  # noqa: E402 - blocks in schedulers and servers
from mxnet import autograd, gluon, nd  # noqa: E402

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, BATCH, EPOCHS = 1200, 20, 5

store = mx.kv.create("dist_sync")
print(f"rank {store.rank}: one of {store.num_workers} workers, with MXNet {mx.__version__}", flush=True)

mx.random.seed(1)
points = nd.random.normal(shape=(POINTS, len(WEIGHT)))
values = nd.dot(points, nd.array(WEIGHT)) + BIAS + nd.random.normal(scale=NOISE, shape=POINTS)
mine = slice(store.rank, None, store.num_workers)
share = gluon.data.ArrayDataset(points[mine], values[mine])

model = gluon.nn.Dense(1, in_units=len(WEIGHT))
model.initialize(mx.init.Normal(sigma=0.01))
loss_of = gluon.loss.L2Loss()
# The servers sum the gradients of all workers. More workers mean fewer steps, so the learning rate grows with them.
rate = {"learning_rate": 0.05 * store.num_workers}
trainer = gluon.Trainer(model.collect_params(), "sgd", rate, kvstore=store)

for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for inputs, targets in gluon.data.DataLoader(share, batch_size=BATCH, shuffle=True):
        with autograd.record():
            loss = loss_of(model(inputs), targets)
        loss.backward()
        trainer.step(len(inputs) * store.num_workers)
        total += loss.sum().asscalar()
    print(f"rank {store.rank}: epoch {epoch} of {EPOCHS}, loss {total / len(share):.6f}", flush=True)

weight, bias = model.weight.data()[0].asnumpy(), model.bias.data().asscalar()
print(f"rank {store.rank}: learned w = ({weight[0]:.2f}, {weight[1]:.2f}), b = {bias:.2f}", flush=True)
