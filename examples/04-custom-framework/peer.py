"""A peer of a ring that computes the sum over all peers and communicates only with its neighbors.

Every peer has a number. In each of n - 1 rounds it sends a number to the next peer and receives one from the previous peer, starting
with its own number. Then every peer has received every number. Ring all-reduce of gradients works in the same way.
"""

import os
import socket
import time

RANK = int(os.environ["RANK"])
PEERS = os.environ["PEERS"].split(",")
NEXT = PEERS[(RANK + 1) % len(PEERS)]
TIMEOUT_SECONDS = 60.0


def connect(address: str) -> socket.socket:
    """Connect to a peer. Retries, because the peers start in any order."""
    host, port = address.rsplit(":", 1)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def listen() -> socket.socket:
    """Listen for the previous peer."""
    host, port = PEERS[RANK].rsplit(":", 1)
    return socket.create_server((host, int(port)))


def main() -> None:
    """Join the ring and compute the sum."""
    with listen() as server, connect(NEXT) as next_peer:
        previous_peer, _ = server.accept()
        with previous_peer, previous_peer.makefile() as lines:
            total = number = (RANK + 1) ** 2
            print(f"peer {RANK} of {len(PEERS)}: sending {number} to {NEXT}", flush=True)
            for _ in range(len(PEERS) - 1):
                next_peer.sendall(f"{number}\n".encode())
                number = int(next(lines))
                total += number
            print(f"peer {RANK} of {len(PEERS)}: sum of all peers: {total}", flush=True)


main()
