"""Replacement for the image that copies kubectl into the launcher pod of an MPI job. It installs the node's own small kubectl.

To use a real kubectl, map the image to a program that copies it to `$TARGET_DIR`.
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
"""Matches the image in every registry."""
