"""The memory that a context keeps: of a platform that counts, and has little."""

from __future__ import annotations

from typing import cast

from motet.runtime.drivers.opencl.api import OpenClApi
from motet.runtime.drivers.opencl.pool import SvmPool

MIB = 1 << 20
CONTEXT = 17


class _Platform:
    """A platform with `capacity` bytes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: dict[int, int] = {}
        self.allocations = 0

    def allocate(self, context: int, size: int) -> int:
        assert context == CONTEXT
        if sum(self.held.values()) + size > self.capacity:
            return 0
        self.allocations += 1
        self.held[self.allocations * (1 << 40)] = size
        return self.allocations * (1 << 40)

    def free(self, context: int, address: int) -> None:
        assert context == CONTEXT
        del self.held[address]


def _pool(platform: _Platform, limit: int) -> SvmPool:
    return SvmPool(cast(OpenClApi, platform), CONTEXT, limit)


def test_memory_is_used_again_for_sizes_that_round_alike() -> None:
    platform = _Platform(100 * MIB)
    pool = _pool(platform, 50 * MIB)
    for size in (0, 1, 63, 64, 511, 5 * MIB, 5 * MIB + 1, 5 * MIB - 1, 7 * MIB):
        address = pool.take(size)
        assert platform.held[address] >= max(size, 1)
        pool.give(address, size)
        assert pool.take(size) == address
        pool.give(address, size)
    assert platform.allocations == 3  # of at most 512 bytes, of 6 MiB, and of 8 MiB


def test_blocks_in_use_are_distinct() -> None:
    pool = _pool(_Platform(100 * MIB), 50 * MIB)
    taken = [pool.take(1000) for _ in range(5)]
    assert len(set(taken)) == 5
    for address in taken:
        pool.give(address, 1000)
    assert {pool.take(1000) for _ in range(5)} == set(taken)


def test_the_oldest_memory_is_returned_above_the_limit() -> None:
    platform = _Platform(100 * MIB)
    pool = _pool(platform, 8 * MIB)
    small, first, second = pool.take(2 * MIB), pool.take(4 * MIB), pool.take(4 * MIB)
    for address, size in ((small, 2 * MIB), (first, 4 * MIB), (second, 4 * MIB)):
        pool.give(address, size)
    assert set(platform.held) == {first, second}
    large = pool.take(32 * MIB)
    pool.give(large, 32 * MIB)
    assert not platform.held


def test_kept_memory_is_returned_when_there_is_no_other() -> None:
    platform = _Platform(10 * MIB)
    pool = _pool(platform, 10 * MIB)
    pool.give(pool.take(6 * MIB), 6 * MIB)
    address = pool.take(8 * MIB)
    assert list(platform.held) == [address]
    assert pool.take(8 * MIB) == 0
    pool.clear()
    assert list(platform.held) == [address]
