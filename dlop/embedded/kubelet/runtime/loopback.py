"""Addresses for pods that share the host's network: of the loopback block, which reaches nobody else.

On Linux all of 127.0.0.0/8 is there to be used, and each runtime takes a part that no other one on this machine has. Elsewhere only
127.0.0.1 is, and all pods have that.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator

ONLY_ADDRESS = "127.0.0.1"


class LoopbackBlock:
    """A part of the loopback block, ours until it is closed."""

    def __init__(self, *, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()  # noqa: S311 - it only spreads
        self._mark: socket.socket | None = None
        self._addresses = self._round_and_round() if sys.platform == "linux" else _the_only_one()

    def next(self) -> str:
        """An address for a pod."""
        return next(self._addresses)

    def close(self) -> None:
        """Give it back."""
        if self._mark is not None:
            self._mark.close()

    def _round_and_round(self) -> Iterator[str]:
        second = self._take()
        while True:
            for number in range(1, 65535):
                yield f"127.{second}.{number >> 8}.{number & 255}"

    def _take(self) -> int:
        # 127.0 is everybody's. The mark of a taken part goes with its owner, however that ends.
        for second in self._dice.sample(range(1, 255), 254):
            mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                mark.bind(f"\0dlop-loopback-{second}")
            except OSError:
                mark.close()
                continue
            self._mark = mark
            return second
        raise OSError("all parts of the loopback block are taken")


def _the_only_one() -> Iterator[str]:
    while True:
        yield ONLY_ADDRESS
