"""A replica of the MarsJob: finds the scheduler in MARS_CLUSTER_DETAIL. Each worker sums a part of the numbers to 99."""

import json
import os

from peers import collect, contribute, reply

detail = json.loads(os.environ["MARS_CLUSTER_DETAIL"])
cluster, task = detail["cluster"], detail["task"]
role, index, workers = task["type"], task["index"], int(os.environ["WORKERS"])
scheduler = cluster["scheduler"][0]

if role == "scheduler":
    total = collect(f"{scheduler.partition(':')[0]}:{os.environ['MARS_BIND_PORT']}", peers=workers + len(cluster["webservice"]))
    print(f"scheduler: the sum of {workers} workers is {total}", flush=True)
    reply(total)
elif role == "worker":
    part = sum(range(index, 100, workers))
    total = contribute(scheduler, part)
    print(f"worker {index} with {task['resources']['cpu_procs']} CPU: {part} of the sum {total}", flush=True)
else:
    print(f"web service: the sum at {scheduler} is {contribute(scheduler, 0)}", flush=True)
