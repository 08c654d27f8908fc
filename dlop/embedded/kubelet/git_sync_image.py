"""Replacement for the image git-sync, which clones the git repository of a job. It runs the git of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from dlop.embedded.kubelet.image_map import Image

GIT_SYNC = Image(name="*git-sync*", command=(sys.executable, "-P", str(Path(__file__).parent / "git_sync.py")))
"""Matches the image in every registry."""
