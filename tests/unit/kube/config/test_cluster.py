"""Credential cache: when credentials are read again, and how rejections are handled."""

from __future__ import annotations

import asyncio
import math

import pytest

from dlop.kube.config.cluster import AuthCache, RequestAuth
from dlop.kube.errors import ConfigurationError


class Tokens:
    """Returns a new token for each read, valid for ten seconds."""

    def __init__(self) -> None:
        self.reads: list[bool] = []
        self.fails = False
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def read(self, *, rejected: bool) -> RequestAuth:
        self.reads.append(rejected)
        await asyncio.sleep(0)
        if self.fails:
            raise ConfigurationError("no token")
        return RequestAuth(authorization=f"token-{len(self.reads)}", renew_at=self.now + 10)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def cache(tokens: Tokens) -> AuthCache:
    return AuthCache(tokens, clock=tokens.clock)


async def test_a_late_rejection_of_old_credentials_does_not_hide_that_of_the_current_ones(cache: AuthCache) -> None:
    first = await cache.get()
    cache.mark_rejected(first)
    await cache.refresh_rejected()
    second = await cache.get()
    cache.mark_rejected(second)
    cache.mark_rejected(first)
    await cache.refresh_rejected()
    assert (await cache.get()).authorization == "token-3"


async def test_a_late_rejection_of_old_credentials_is_ignored(tokens: Tokens, cache: AuthCache) -> None:
    first = await cache.get()
    cache.mark_rejected(first)
    await cache.refresh_rejected()
    cache.mark_rejected(first)
    await cache.refresh_rejected()
    assert tokens.reads == [False, True]


async def test_credentials_kept_after_a_failed_read_can_still_be_rejected(tokens: Tokens, cache: AuthCache) -> None:
    first = await cache.get()
    tokens.now, tokens.fails = 11, True
    assert await cache.get() is first
    tokens.fails = False
    cache.mark_rejected(first)
    await cache.refresh_rejected()
    assert (await cache.get()).authorization == "token-3"


async def test_rejected_credentials_are_not_kept_after_a_failed_read(tokens: Tokens, cache: AuthCache) -> None:
    cache.mark_rejected(await cache.get())
    tokens.fails = True
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await cache.refresh_rejected()


async def test_invalidated_credentials_are_read_again_before_their_next_use(cache: AuthCache) -> None:
    await cache.get()
    cache.invalidate()
    assert cache.cached() is None
    assert (await cache.get()).authorization == "token-2"


async def test_a_failed_read_without_waiting_callers_is_ignored(tokens: Tokens, cache: AuthCache) -> None:
    tokens.fails = True
    waiting = asyncio.create_task(cache.get())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    tokens.fails = False
    assert (await cache.get()).renew_at < math.inf
