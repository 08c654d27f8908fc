"""Linear regression by JAX over several processes: finds w = (2.0, -3.4) and b = 4.2, which no process could alone.

Each process has points along one axis only, which say nothing of the weight of the other. The points of all processes are one
array to JAX, and a step on it is one program: where it needs a sum over all points, the processes add up theirs.
"""

import os

import jax

jax.distributed.initialize(
    coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    num_processes=int(os.environ["NUM_PROCESSES"]),
    process_id=int(os.environ["PROCESS_ID"]),
)

import jax.numpy as jnp  # noqa: E402 - what JAX computes with is settled when it is first asked
import numpy as np  # noqa: E402

WEIGHT, BIAS, NOISE = (2.0, -3.4), 4.2, 0.01
POINTS, RATE, EPOCHS, STEPS = 600, 0.3, 5, 6
RANK = jax.process_index()

Model = tuple[jax.Array, jax.Array]


def say(text: str) -> None:
    """Tell it to whoever reads the log."""
    print(f"process {RANK}: {text}", flush=True)


def own_points() -> tuple[np.ndarray, np.ndarray]:
    """Points along the axis of this process, and their values."""
    chance = np.random.default_rng(RANK)
    points = np.zeros((POINTS, len(WEIGHT)), dtype=np.float32)
    points[:, RANK % len(WEIGHT)] = chance.normal(size=POINTS)
    values = points @ np.array(WEIGHT) + BIAS + chance.normal(scale=NOISE, size=POINTS)
    return points, values.astype(np.float32)


def loss_of(model: Model, points: jax.Array, values: jax.Array) -> jax.Array:
    """How far a model is off, over all points that there are."""
    weight, bias = model
    return jnp.mean((points @ weight + bias - values) ** 2)


@jax.jit
def train(model: Model, points: jax.Array, values: jax.Array) -> Model:
    """The steps of one epoch."""

    def step(_: int, model: Model) -> Model:
        slopes = jax.grad(loss_of)(model, points, values)
        return jax.tree.map(lambda number, slope: number - RATE * slope, model, slopes)

    return jax.lax.fori_loop(0, STEPS, step, model)


def learned(points: jax.Array, values: jax.Array, *, tell: bool = False) -> str:
    """The weights and the bias that points teach."""
    model = (jnp.zeros(len(WEIGHT)), jnp.zeros(()))
    for epoch in range(1, EPOCHS + 1):
        model = train(model, points, values)
        if tell:
            say(f"epoch {epoch} of {EPOCHS}, loss {loss_of(model, points, values):.6f}")
    (first, second), bias = model
    return f"w = ({first:.2f}, {second:.2f}), b = {bias:.2f}"


say(f"one of {jax.process_count()}, with JAX {jax.__version__}")
mine = own_points()
say(f"on its own it would say {learned(*map(jnp.asarray, mine))}")

everyone = jax.NamedSharding(jax.sharding.Mesh(jax.devices(), ("points",)), jax.P("points"))
ours = [jax.make_array_from_process_local_data(everyone, share) for share in mine]
say(f"learned {learned(*ours, tell=True)}")
