"""A sum over the replicas of a job, over TCP: it is complete only if all replicas find each other.

One replica collects a number from each of the others, and sends the sum back.
"""

import socket
import time

TIMEOUT_SECONDS = 60.0
connections: list[socket.socket] = []
"""They stay open until the program ends."""


def collect(address: str, *, peers: int) -> int:
    """The sum of the numbers of all peers, which wait for `reply`."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as server:
        connections.extend(server.accept()[0] for _ in range(peers))
    return sum(int(connection.makefile().readline()) for connection in connections)


def reply(total: int) -> None:
    """Send the sum to all peers. Returns when they have ended, because the job may finish with this replica."""
    for connection in connections:
        connection.sendall(f"{total}\n".encode())
    for connection in connections:
        connection.recv(1)


def connect(address: str) -> socket.socket:
    """Connect to a replica. Retries, because a pod that runs may not listen yet."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def contribute(address: str, number: int) -> int:
    """Send a number to the replica that collects, and return the sum."""
    connection = connect(address)
    connections.append(connection)
    connection.sendall(f"{number}\n".encode())
    return int(connection.makefile().readline())
