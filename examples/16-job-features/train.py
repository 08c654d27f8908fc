"""The program in the git repository of code-sync.yaml."""

import os
from pathlib import Path

print(f"process {os.environ['PROCESS_ID']} of {os.environ['NUM_PROCESSES']} runs {Path(__file__).resolve()}", flush=True)
