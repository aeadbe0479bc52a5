"""The pool of blocks over an interface that runs step by step: what is given out again, and when."""

from __future__ import annotations

import pytest
from tests.unit.runtime.drivers.common.stepped import SteppedApi, SteppedBlocks, SteppedError

from motet.runtime.drivers.common.block_pool import BlockPool, rounded


def pool_of(capacity: int) -> tuple[SteppedApi, SteppedBlocks, BlockPool]:
    api, blocks = SteppedApi(), SteppedBlocks(capacity)
    return api, blocks, BlockPool(api, blocks, capacity)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, 10**9])
def test_a_block_holds_its_size_and_wastes_little(size: int) -> None:
    block = rounded(size)
    assert block >= size
    assert block <= 512 or block - size <= max(block / 5, 1 << 21)


def test_memory_that_came_back_is_given_out_again_without_asking() -> None:
    _, blocks, pool = pool_of(1 << 24)
    address = pool.allocate(1000)
    pool.give_back(address, 1000)
    assert pool.reuse(900) == address
    assert len(blocks.taken) == 1


def test_memory_of_a_stream_is_reused_there_at_once_and_elsewhere_behind_its_work() -> None:
    api, _, pool = pool_of(1 << 24)
    stream = api.stream_create()
    address = pool.allocate(4096)
    api.put(stream, lambda: None)
    pool.give_back(address, 4096, stream)
    assert pool.reuse(4096, api.stream_create()) is None
    assert pool.reuse(4096, stream) == address

    pool.give_back(address, 4096, stream)
    assert pool.allocate(4096) != address  # the stream's work is still to come
    api.run()
    assert pool.allocate(4096) == address
    assert api.events == 0


def test_memory_of_a_stream_that_was_destroyed_waits_for_the_whole_context() -> None:
    api, _, pool = pool_of(1 << 24)
    stream = api.stream_create()
    address = pool.allocate(4096)
    ran: list[int] = []
    api.put(stream, lambda: ran.append(1))
    pool.give_back(address, 4096, stream)
    api.stream_destroy(stream)
    assert pool.allocate(4096) == address
    assert ran == [1]


def test_a_stream_that_is_captured_is_not_asked() -> None:
    api, _, pool = pool_of(1 << 24)
    stream = api.stream_create()
    api.capturing.add(id(stream))
    pool.give_back(address := pool.allocate(4096), 4096, stream)
    assert pool.allocate(4096) != address
    api.capturing.clear()
    assert pool.allocate(4096) == address


def test_without_memory_what_is_unused_goes_back_and_what_streams_use_is_waited_for() -> None:
    api, blocks, pool = pool_of(8 << 20)
    stream = api.stream_create()
    first, second = pool.allocate(4 << 20), pool.allocate(2 << 20)
    pool.give_back(first, 4 << 20)
    api.put(stream, lambda: None)
    pool.give_back(second, 2 << 20, stream)
    assert pool.allocate(8 << 20)
    assert sum(blocks.taken.values()) == 8 << 20
    with pytest.raises(SteppedError):
        pool.allocate(1)


def test_the_end_frees_every_block_that_is_not_in_use() -> None:
    api, blocks, pool = pool_of(1 << 24)
    stream = api.stream_create()
    pool.give_back(pool.allocate(4096), 4096)
    pool.give_back(pool.allocate(8192), 8192, stream)
    pool.destroy()
    assert blocks.closed and not blocks.taken and api.events == 0
