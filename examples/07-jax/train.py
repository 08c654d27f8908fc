"""Linear regression with JAX over several processes: finds w = (2.0, -3.4) and b = 4.2, which no process can find alone.

Each process has points along one axis only. The points of all processes form one sharded array. A training step is one program on
this array; for sums over all points, JAX communicates between the processes.
"""

import os

import jax

jax.distributed.initialize(
    coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    num_processes=int(os.environ["NUM_PROCESSES"]),
    process_id=int(os.environ["PROCESS_ID"]),
)

import jax.numpy as jnp  # noqa: E402 - initialize before the first use of a device
import numpy as np  # noqa: E402

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, RATE, EPOCHS, STEPS = 600, 0.3, 5, 6
RANK = jax.process_index()

Model = tuple[jax.Array, jax.Array]


def log(text: str) -> None:
    print(f"process {RANK}: {text}", flush=True)


def own_points() -> tuple[np.ndarray, np.ndarray]:
    """Points along the axis of this process, and their values."""
    rng = np.random.default_rng(RANK)
    points = np.zeros((POINTS, len(WEIGHT)), dtype=np.float32)
    points[:, RANK % len(WEIGHT)] = rng.normal(size=POINTS)
    values = points @ np.array(WEIGHT) + BIAS + rng.normal(scale=NOISE, size=POINTS)
    return points, values.astype(np.float32)


def loss_of(model: Model, points: jax.Array, values: jax.Array) -> jax.Array:
    """The mean squared error over all points."""
    weight, bias = model
    return jnp.mean((points @ weight + bias - values) ** 2)


@jax.jit
def train(model: Model, points: jax.Array, values: jax.Array) -> Model:
    """The steps of one epoch."""

    def step(_: int, model: Model) -> Model:
        gradients = jax.grad(loss_of)(model, points, values)
        return jax.tree.map(lambda parameter, gradient: parameter - RATE * gradient, model, gradients)

    return jax.lax.fori_loop(0, STEPS, step, model)


def fit(points: jax.Array, values: jax.Array, *, verbose: bool = False) -> str:
    """Train on the points and return the weights and the bias."""
    model = (jnp.zeros(len(WEIGHT)), jnp.zeros(()))
    for epoch in range(1, EPOCHS + 1):
        model = train(model, points, values)
        if verbose:
            log(f"epoch {epoch} of {EPOCHS}, loss {loss_of(model, points, values):.6f}")
    (first, second), bias = model
    return f"w = ({first:.2f}, {second:.2f}), b = {bias:.2f}"


log(f"one of {jax.process_count()}, with JAX {jax.__version__}")
mine = own_points()
log(f"trained alone: {fit(*map(jnp.asarray, mine))}")

all_processes = jax.NamedSharding(jax.sharding.Mesh(jax.devices(), ("points",)), jax.P("points"))
sharded = [jax.make_array_from_process_local_data(all_processes, share) for share in mine]
log(f"learned {fit(*sharded, verbose=True)}")
