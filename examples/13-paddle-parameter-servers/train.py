"""Linear regression with PaddlePaddle's parameter servers: finds w = (2.0, -3.4) and b = 4.2, which no trainer can find alone.

All servers and trainers run this file. A table with a row for each weight and one for the bias is distributed over the servers. Each
trainer has points along one axis only. In each step it pulls two rows and pushes their gradients.
"""

import io
import logging
import os
import sys

import numpy as np
import paddle
from paddle.distributed import fleet, gloo_barrier, gloo_init_parallel_env

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
BATCH, STEPS, RATE = 20, 20, 0.0005  # fleet multiplies gradients by the size of the batch
PASSES = int(os.environ["PADDLE_INIT_NUM_PASSES"])

stdout, sys.stdout = sys.stdout, io.StringIO()  # fleet prints its configuration
logging.disable()


def log(text: str) -> None:
    print(text, file=stdout, flush=True)


paddle.enable_static()
fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
rows = paddle.static.data("rows", [None, 1], "int64")
factors = paddle.static.data("factors", [None, 2])
values = paddle.static.data("values", [None])
table = paddle.static.nn.sparse_embedding(rows, [len(WEIGHT) + 1, 1], param_attr=paddle.ParamAttr(name="table"))
loss = paddle.mean((paddle.sum(paddle.reshape(table, [-1, 2]) * factors, axis=1) - values) ** 2)

strategy = fleet.DistributedStrategy()
strategy.a_sync = True
strategy.sparse_table_configs = {
    "table": {
        "table_parameters.table.shard_num": fleet.server_num(),  # row n is on server n modulo this number
        "table_parameters.table.accessor.embed_sgd_param.name": "SparseNaiveSGDRule",
    }
}
fleet.distributed_optimizer(paddle.optimizer.SGD(RATE), strategy).minimize(loss)

if fleet.is_server():
    paddle.disable_signal_handler()  # it prints a stack when the server is stopped
    fleet.init_server()
    log(f"server {fleet.server_index()}: one of {fleet.server_num()}, with PaddlePaddle {paddle.__version__}")
    fleet.run_server()

rank = fleet.worker_index()
random, executor = np.random.default_rng(rank), paddle.static.Executor()
log(f"trainer {rank}: one of {fleet.worker_num()}, with PaddlePaddle {paddle.__version__}")
gloo_init_parallel_env(rank, fleet.worker_num(), fleet.worker_endpoints()[0])
executor.run(paddle.static.default_startup_program())
fleet.init_worker()
gloo_barrier()


def step(rows: list[int], factors: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The loss and the pulled rows of a step."""
    feed = {"rows": np.array(rows)[:, None], "factors": factors.astype(np.float32), "values": values.astype(np.float32)}
    return executor.run(feed=feed, fetch_list=[loss, table])


axis = rank % len(WEIGHT)
for number in range(1, PASSES + 1):
    losses = []
    for _ in range(STEPS):
        points = random.normal(size=BATCH)
        measured = points * WEIGHT[axis] + BIAS + random.normal(scale=NOISE, size=BATCH)
        losses.append(step([axis, len(WEIGHT)] * BATCH, np.stack([points, np.ones(BATCH)], axis=1), measured)[0])
    log(f"trainer {rank}: pass {number} of {PASSES}, loss {np.mean(losses):.6f}")

gloo_barrier()
# With factors of zero, the gradients are zero.
_, (first, second, bias, _) = step([0, 1, 2, 2], np.zeros((2, 2)), np.zeros(2))
log(f"trainer {rank}: learned w = ({first.item():.2f}, {second.item():.2f}), b = {bias.item():.2f}")
fleet.stop_worker()
