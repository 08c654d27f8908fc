"""Linear regression with PaddlePaddle's DataParallel: finds w = (2.0, -3.4) and b = 4.2, which no worker can find alone.

Each worker has points along one axis only. In each step, gloo averages the gradients of all workers.
"""

import contextlib
import io
import os

# The operator sets the addresses of all workers. PaddlePaddle also needs the address of this one.
os.environ["PADDLE_CURRENT_ENDPOINT"] = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[int(os.environ["PADDLE_TRAINER_ID"])]
os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"

import paddle
import paddle.distributed as dist

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, BATCH, RATE, EPOCHS = 600, 20, 0.1, 5

with contextlib.redirect_stderr(io.StringIO()):  # it prints its flags
    dist.init_parallel_env()
rank, size = dist.get_rank(), dist.get_world_size()


def log(text: str) -> None:
    print(f"worker {rank}: {text}", flush=True)


log(f"one of {size}, with PaddlePaddle {paddle.__version__}")
paddle.seed(rank)
points = paddle.zeros([POINTS, len(WEIGHT)])
points[:, rank % len(WEIGHT)] = paddle.randn([POINTS])
values = points @ paddle.to_tensor(WEIGHT) + BIAS + NOISE * paddle.randn([POINTS])
batches = paddle.io.DataLoader(paddle.io.TensorDataset([points, values]), batch_size=BATCH, shuffle=True)

layer = paddle.nn.Linear(len(WEIGHT), 1)
model = paddle.DataParallel(layer)
optimizer = paddle.optimizer.SGD(RATE, model.parameters())
for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for inputs, targets in batches:
        loss = paddle.nn.functional.mse_loss(model(inputs).squeeze(), targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        total += float(loss)
    log(f"epoch {epoch} of {EPOCHS}, loss {total / len(batches):.6f}")

(first,), (second,) = layer.weight.tolist()
log(f"learned w = ({first:.2f}, {second:.2f}), b = {layer.bias.item():.2f}")
