"""Loopback addresses for pods on the host's network.

On Linux all of 127.0.0.0/8 is usable, and each runtime claims a /16 that no other runtime on this machine uses. On other systems only
127.0.0.1 is usable, and all pods share it.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator

LOCALHOST = "127.0.0.1"


class LoopbackBlock:
    """A /16 of the loopback network, claimed until it is closed."""

    def __init__(self, *, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 - not for secrets
        self._claim: socket.socket | None = None
        self._addresses = self._cycle() if sys.platform == "linux" else _repeat_localhost()

    def next(self) -> str:
        """The address of the next pod."""
        return next(self._addresses)

    def close(self) -> None:
        if self._claim is not None:
            self._claim.close()

    def _cycle(self) -> Iterator[str]:
        second_octet = self._claim_block()
        while True:
            for number in range(1, 65535):
                yield f"127.{second_octet}.{number >> 8}.{number & 255}"

    def _claim_block(self) -> int:
        # 127.0.0.0/16 is left to other programs. An abstract socket is the claim, because the kernel releases it with its owner.
        for second_octet in self._rng.sample(range(1, 255), 254):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0dlop-loopback-{second_octet}")
            except OSError:
                claim.close()
                continue
            self._claim = claim
            return second_octet
        raise OSError("all loopback address blocks are in use")


def _repeat_localhost() -> Iterator[str]:
    while True:
        yield LOCALHOST
