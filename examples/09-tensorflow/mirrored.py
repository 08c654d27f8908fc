"""A line in two directions by TensorFlow: worker number n sees points along axis n only, so neither can find the other's weight.

Every worker has the whole model, and after each step the gradients of all are added up. TF_CONFIG says who they are.
"""

import json
import os

import tensorflow as tf

STEPS, POINTS, RATE = 60, 64, 0.3

task = json.loads(os.environ["TF_CONFIG"])["task"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
size, me = strategy.num_replicas_in_sync, task["index"]
print(f"{task['type']} {me}: one of {size}, with TensorFlow {tf.__version__}", flush=True)

points = tf.random.stateless_normal([POINTS, 1], seed=[7, me]) * tf.one_hot([me], size)
values = points[:, me] * (me + 1)  # the weight of axis n is n + 1
with strategy.scope():
    weights = tf.Variable(tf.zeros([size]), aggregation=tf.VariableAggregation.SUM)


@tf.function
def step() -> None:
    """One step of every worker, with the gradients of all."""

    def mine() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(points, weights) - values) ** 2)
        weights.assign_sub(RATE * tape.gradient(loss, weights))

    strategy.run(mine)


for _ in range(STEPS):
    step()
learned = ", ".join(f"{weight:.2f}" for weight in weights.numpy())
print(f"{task['type']} {me}: learned w = ({learned})", flush=True)
