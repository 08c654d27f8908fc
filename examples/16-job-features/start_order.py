"""A server that needs time before it listens, and workers that connect at once and do not retry."""

import json
import os
import socket
import time

config = json.loads(os.environ["TF_CONFIG"])
cluster, role, index = config["cluster"], config["task"]["type"], config["task"]["index"]
address, _, port = cluster["ps"][0].rpartition(":")

if role == "ps":
    print("server: loading", flush=True)
    time.sleep(1)
    workers = set()
    with socket.create_server((address, int(port))) as server:
        print("server: listening", flush=True)
        while len(workers) < len(cluster["worker"]):
            connection, _ = server.accept()
            with connection:
                if line := connection.makefile().readline():  # the readiness probe connects, too, and sends nothing
                    workers.add(line)
    print(f"server: {len(workers)} workers have connected", flush=True)
else:
    with socket.create_connection((address, int(port))) as connection:
        connection.sendall(f"worker {index}\n".encode())
        connection.recv(1)
    print(f"worker {index}: connected to the server", flush=True)
