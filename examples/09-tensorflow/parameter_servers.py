"""Linear regression with TensorFlow's parameter servers. Each server holds one weight, and each worker has points along one axis.

Every replica of the job runs this file. The chief schedules the steps. A step runs on any idle worker, with the points of that
worker. TF_CONFIG contains the addresses of all replicas.
"""

import tensorflow as tf

TRUE, STEPS, POINTS, RATE = (2.0, -3.4), 400, 64, 0.2
FILE = "/points/mine"

cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
role, index = cluster.task_type, cluster.task_id
print(f"{role} {index}: with TensorFlow {tf.__version__}", flush=True)
if role == "worker":
    points = tf.random.stateless_normal([POINTS, 1], seed=[7, index]) * tf.one_hot([index], len(TRUE))
    tf.io.write_file(FILE, tf.io.serialize_tensor(points))
if role != "chief":
    tf.distribute.Server(cluster.cluster_spec(), job_name=role, task_index=index, protocol="grpc").join()

strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = [tf.Variable(0.0) for _ in TRUE]


@tf.function
def step() -> None:
    """One step on a worker: read the weights from the servers and update them."""
    points = tf.ensure_shape(tf.io.parse_tensor(tf.io.read_file(FILE), tf.float32), [POINTS, len(TRUE)])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.linalg.matvec(points, tf.stack(weights)) - tf.linalg.matvec(points, TRUE)) ** 2)
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(RATE * gradient)


for _ in range(STEPS):
    coordinator.schedule(step)
coordinator.join()
servers = {weight.device for weight in weights}
learned = ", ".join(f"{weight.numpy():.2f}" for weight in weights)
print(f"chief {index}: after {STEPS} steps {len(servers)} servers hold w = ({learned})", flush=True)
