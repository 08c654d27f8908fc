"""When credentials are read again, and that a refusal is never taken for one of others."""

from __future__ import annotations

import asyncio
import math

import pytest

from dlop.kube.config.cluster import Access, CurrentAccess
from dlop.kube.errors import ConfigurationError


class Tokens:
    """Gives a new token each time, for ten seconds, unless it is told to fail."""

    def __init__(self) -> None:
        self.reads: list[bool] = []
        self.fails = False
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def read(self, *, refused: bool) -> Access:
        self.reads.append(refused)
        await asyncio.sleep(0)
        if self.fails:
            raise ConfigurationError("no token")
        return Access(authorization=f"token-{len(self.reads)}", renew_at=self.now + 10)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def current(tokens: Tokens) -> CurrentAccess:
    return CurrentAccess(tokens, clock=tokens.clock)


async def test_a_late_refusal_of_what_was_replaced_does_not_hide_the_refusal_of_what_is_in_use(current: CurrentAccess) -> None:
    first = await current.get()
    current.refuse(first)
    await current.renew()
    second = await current.get()
    current.refuse(second)
    current.refuse(first)
    await current.renew()
    assert (await current.get()).authorization == "token-3"


async def test_a_late_refusal_of_what_was_replaced_reads_nothing(tokens: Tokens, current: CurrentAccess) -> None:
    first = await current.get()
    current.refuse(first)
    await current.renew()
    current.refuse(first)
    await current.renew()
    assert tokens.reads == [False, True]


async def test_what_outlived_a_failed_reading_can_still_be_refused(tokens: Tokens, current: CurrentAccess) -> None:
    first = await current.get()
    tokens.now, tokens.fails = 11, True
    assert await current.get() is first
    tokens.fails = False
    current.refuse(first)
    await current.renew()
    assert (await current.get()).authorization == "token-3"


async def test_a_refused_access_does_not_outlive_a_failed_reading(tokens: Tokens, current: CurrentAccess) -> None:
    current.refuse(await current.get())
    tokens.fails = True
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await current.renew()


async def test_what_is_doubted_is_read_again_before_its_next_use(current: CurrentAccess) -> None:
    await current.get()
    current.doubt()
    assert current.at_hand() is None
    assert (await current.get()).authorization == "token-2"


async def test_a_reading_that_fails_after_all_have_given_up_disturbs_nobody(tokens: Tokens, current: CurrentAccess) -> None:
    tokens.fails = True
    waiting = asyncio.create_task(current.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    tokens.fails = False
    assert (await current.get()).renew_at < math.inf
