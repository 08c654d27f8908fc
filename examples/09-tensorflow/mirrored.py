"""Linear regression with TensorFlow's MultiWorkerMirroredStrategy. Worker n has points along axis n only.

Every worker has a copy of the model, and each step sums the gradients of all workers. TF_CONFIG contains their addresses.
"""

import json
import os

import tensorflow as tf

STEPS, POINTS, RATE = 60, 64, 0.3

task = json.loads(os.environ["TF_CONFIG"])["task"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
size, index = strategy.num_replicas_in_sync, task["index"]
print(f"{task['type']} {index}: one of {size}, with TensorFlow {tf.__version__}", flush=True)

points = tf.random.stateless_normal([POINTS, 1], seed=[7, index]) * tf.one_hot([index], size)
values = points[:, index] * (index + 1)  # the weight of axis n is n + 1
with strategy.scope():
    weights = tf.Variable(tf.zeros([size]), aggregation=tf.VariableAggregation.SUM)


@tf.function
def step() -> None:
    """One step on all workers."""

    def replica_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(points, weights) - values) ** 2)
        weights.assign_sub(RATE * tape.gradient(loss, weights))

    strategy.run(replica_step)


for _ in range(STEPS):
    step()
learned = ", ".join(f"{weight:.2f}" for weight in weights.numpy())
print(f"{task['type']} {index}: learned w = ({learned})", flush=True)
