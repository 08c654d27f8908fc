"""A replica of the TFJob: finds the others in TF_CONFIG. Each worker sends a number to the parameter server and gets the sum."""

import json
import os

from peers import collect, contribute, reply

config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
servers, workers, index = cluster["ps"], cluster["worker"], task["index"]

if task["type"] == "ps":
    total = collect(servers[index], peers=len(workers))
    print(f"server {index}: the sum of {len(workers)} workers is {total}", flush=True)
    reply(total)
else:
    total = contribute(servers[0], index + 1)
    print(f"worker {index} of {', '.join(workers)}: the sum at {servers[0]} is {total}", flush=True)
