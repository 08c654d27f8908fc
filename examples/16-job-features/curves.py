"""Writes the loss of a training as event files for TensorBoard."""

import sys

from tensorboard.summary import Writer

writer = Writer(sys.argv[1])
for step in range(100):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.close()
print("wrote the loss of 100 steps", flush=True)
