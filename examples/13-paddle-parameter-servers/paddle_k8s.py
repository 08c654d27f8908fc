#!/usr/bin/env python3
"""The entrypoint of the image: runs the program of the user ($ENTRY) as a parameter server or as a trainer.

It sets the variables of `paddle.distributed.fleet` from those of the early operator, and stands for the `paddle_k8s` of old images.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

ROLES = {
    ("start_pserver",): "PSERVER",
    ("start_trainer",): "TRAINER",
    ("start_trainer", "fluid"): "TRAINER",
    ("start_trainer", "v2"): "TRAINER",
}
STACK_BYTES = 2**20
"""PaddlePaddle starts about 50 threads. With stacks of the usual size, they exceed the memory limit of the trainers."""


def wait_for(server: str) -> None:
    """Wait until a parameter server accepts connections. A trainer that connects earlier fails."""
    host, port = server.split(":")
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            time.sleep(0.2)


def fleet_variables(role: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that fleet reads. Names of services stand for IP addresses."""
    port, trainers = given["PADDLE_PSERVER_PORT"], given["PADDLE_TRAINERS"]
    return {
        "TRAINING_ROLE": role,
        "POD_IP": given["PADDLE_CURRENT_IP"],
        "PADDLE_PORT": port,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"{host}:{port}" for host in given["PADDLE_PSERVER_IPS"].split(",")),
        "PADDLE_TRAINERS_NUM": trainers,
        "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{given['PADDLE_JOB_NAME']}-trainer-{index}:{port}" for index in range(int(trainers))),
        "FLAGS_enable_pir_api": "0",  # parameter servers need the older form of static programs
    }


def main() -> int:
    role = ROLES.get(tuple(sys.argv[1:]))
    if role is None:
        sys.exit("usage: paddle_k8s start_pserver | start_trainer [fluid|v2]")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    variables = fleet_variables(role, os.environ)
    if role == "TRAINER":
        for server in variables["PADDLE_PSERVERS_IP_PORT_LIST"].split(","):
            wait_for(server)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    command, workspace = ["/bin/sh", "-c", os.environ["ENTRY"]], os.environ["TRAINER_PACKAGE"] or None
    environment = {**os.environ, **variables}
    process = subprocess.Popen(command, cwd=workspace, env=environment, process_group=0)  # noqa: S603 - the command of the user
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(process.pid, signal.SIGTERM))
    code = process.wait()
    return code if code >= 0 else 128 - code


sys.exit(main())
