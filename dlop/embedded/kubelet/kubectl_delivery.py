"""The image that brings a kubectl to the launcher of an MPI job, as this node has it: it brings the node's own.

Whoever wants the whole program maps the image to something that copies it to `$TARGET_DIR`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dlop.embedded.kubelet.image_map import Image

_PROGRAM = Path(__file__).parent / "kubectl.py"
_SCRIPT = """\
printf '#!/bin/sh\\nexec "%s" -P "%s" "$@"\\n' "$1" "$2" > "$TARGET_DIR/kubectl" && chmod 755 "$TARGET_DIR/kubectl"
"""

KUBECTL_DELIVERY = Image(name="*/kubectl-delivery", command=("sh", "-c", _SCRIPT, "deliver", sys.executable, str(_PROGRAM)))
"""Under whichever name it is published."""
