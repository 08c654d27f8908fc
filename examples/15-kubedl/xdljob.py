"""A replica of the XDLJob: finds the others in XDL_CONFIG. Each worker sends a number to all parameter servers and gets their sums."""

import json
import os

from peers import collect, contribute, reply

cluster = json.loads(os.environ["XDL_CONFIG"])["cluster"]
servers, workers = cluster["ps"], cluster["worker"]
role, index = os.environ["TASK_NAME"], int(os.environ["TASK_INDEX"])

if role == "ps":
    total = collect(servers[index], peers=len(workers))
    print(f"server {index}: the sum of {len(workers)} workers is {total}", flush=True)
    reply(total)
else:
    path = os.environ["ZK_ADDR"].replace(os.environ["JOB_UID"], "UID")
    totals = [contribute(address, index + 1) for address in servers]
    print(f"worker {index} of {len(workers)}: the sums of {len(servers)} servers are {totals}, and ZooKeeper is at {path}", flush=True)
