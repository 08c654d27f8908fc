"""Linear regression by MXNet's parameter servers: finds w = (2.0, -3.4) and b = 4.2 again in points with noise.

Every replica of the job runs this file. For the scheduler and the servers there is nothing below the import: it serves until
the workers are done, and ends the program. The workers go on, each with its share of the points.
"""

import os

os.environ["PS_VERBOSE"] = "0"  # with 2, which the operator sets, every message between replicas is a line of the log
print(f"{os.environ['DMLC_ROLE']}: looking for the scheduler at {os.environ['DMLC_PS_ROOT_URI']}", flush=True)

import mxnet as mx  # noqa: E402 - all that schedulers and servers do
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
# The servers add up the gradients of all workers: more workers, fewer and longer steps.
rate = {"learning_rate": 0.05 * store.num_workers}
trainer = gluon.Trainer(model.collect_params(), "sgd", rate, kvstore=store)

for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for inputs, wanted in gluon.data.DataLoader(share, batch_size=BATCH, shuffle=True):
        with autograd.record():
            loss = loss_of(model(inputs), wanted)
        loss.backward()
        trainer.step(len(inputs) * store.num_workers)
        total += loss.sum().asscalar()
    print(f"rank {store.rank}: epoch {epoch} of {EPOCHS}, loss {total / len(share):.6f}", flush=True)

weight, bias = model.weight.data()[0].asnumpy(), model.bias.data().asscalar()
print(f"rank {store.rank}: learned w = ({weight[0]:.2f}, {weight[1]:.2f}), b = {bias:.2f}", flush=True)
