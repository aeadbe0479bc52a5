"""Transfers through pinned memory over an interface that runs step by step, against numpy's own copies."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.unit.runtime.drivers.common.stepped import SteppedApi

from motet.runtime.drivers.common.staging import SMALL, StagingMemory
from motet.runtime.drivers.common.transfers import Transfers


def opened() -> tuple[SteppedApi, StagingMemory, Transfers]:
    api = SteppedApi()
    staging = StagingMemory(api)
    return api, staging, Transfers(api, staging)


def noise(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 1, 4097, SMALL, SMALL + 1, 11 * SMALL + 77])
def test_bytes_go_there_and_come_back(size: int) -> None:
    api, staging, transfers = opened()
    stream = api.stream_create()
    device, back = np.zeros(size + 1, np.uint8), np.zeros(size, np.uint8)
    sent = noise(size, size)
    given = sent.copy()
    issue, by_thread = transfers.upload(device.ctypes.data, given, 0)
    assert by_thread == (size > SMALL)
    finish = issue(stream)
    given[:] = 0  # it has been read, though the device may still move the end of it
    api.run()
    if finish is not None:
        finish()
    np.testing.assert_array_equal(device[:size], sent)
    finish = transfers.download(back, device.ctypes.data, 0)[0](stream)
    api.run()
    if finish is not None:
        finish()
    np.testing.assert_array_equal(back, sent)
    staging.close()
    assert not api.memory and api.events == 0


def test_parts_are_gathered_to_their_places() -> None:
    api, staging, transfers = opened()
    stream = api.stream_create()
    picked = random.Random(7)
    parts, end = [], 0
    for seed in range(40):
        end += picked.choice([0, 1, 100])
        parts.append((end, noise(picked.choice([0, 1, 5000, 300_000, 3_000_000]), seed)))
        end += parts[-1][1].size
    device = np.zeros(end, np.uint8)
    transfers.gather(device.ctypes.data, end, parts, 0)[0](stream)
    api.run()
    for at, data in parts:
        np.testing.assert_array_equal(device[at : at + data.size], data)
    staging.close()


def test_a_slot_is_used_again_and_pinned_memory_needs_none() -> None:
    api, staging, transfers = opened()
    stream = api.stream_create()
    device = np.zeros(100, np.uint8)
    for _ in range(3):
        finish = transfers.upload(device.ctypes.data, noise(100, 1), 0)[0](stream)
        api.run()
        assert finish is not None
        finish()
    assert len(api.memory) == 1
    pinned = staging.take(4 * SMALL)
    assert transfers.upload(0, pinned.array, 0)[1] is False
    staging.close()
