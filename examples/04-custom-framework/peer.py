"""A peer of a ring: adds up what all peers have, talking only to its neighbours.

Every peer brings a number. In each of n - 1 rounds it passes on to the next peer what came from the one before, beginning
with its own number; then each has seen every number. This is how gradients are gathered in rings of GPUs.
"""

import os
import socket
import time

RANK = int(os.environ["RANK"])
PEERS = os.environ["PEERS"].split(",")
NEXT = PEERS[(RANK + 1) % len(PEERS)]
PATIENCE_SECONDS = 60.0


def connect(address: str) -> socket.socket:
    """A connection to a peer, as soon as it is there: nobody knows who starts first."""
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def listen() -> socket.socket:
    """Where the peer before this one finds it."""
    host, port = PEERS[RANK].rsplit(":", 1)
    return socket.create_server((host, int(port)))


def main() -> None:
    """Join the ring and go round once."""
    with listen() as door, connect(NEXT) as following:
        preceding, _ = door.accept()
        with preceding, preceding.makefile() as lines:
            total = number = (RANK + 1) ** 2
            print(f"peer {RANK} of {len(PEERS)} brings {number} and passes it on to {NEXT}", flush=True)
            for _ in range(len(PEERS) - 1):
                following.sendall(f"{number}\n".encode())
                number = int(next(lines))
                total += number
            print(f"peer {RANK}: all together have {total}", flush=True)


main()
