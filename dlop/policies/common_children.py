"""Child objects that jobs of all kinds can have."""

from __future__ import annotations

from typing import Any

from dlop.policies.children import ChildObjects
from dlop.policies.kueue import KueueWorkloads
from dlop.policies.tensorboard import TensorBoardObjects

COMMON_CHILDREN: tuple[ChildObjects[Any], ...] = (TensorBoardObjects(), KueueWorkloads())
"""They are watched on demand, because most jobs have none of them."""
