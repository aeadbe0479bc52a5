"""Occupancy against figures of NVIDIA's occupancy calculator."""

from __future__ import annotations

import pytest

from motet.lab.counters.gpu_resources import occupancy


@pytest.mark.parametrize("threads, registers, shared, target, share", [
    (256, 32, 0, "sm_90a", 1.0),  # 8 blocks of 8 warps
    (256, 64, 0, "sm_80", 0.5),  # registers: 4 blocks
    (128, 255, 0, "sm_90a", 0.125),  # 256 registers for each thread: 2 blocks of 4 warps
    (256, 168, 200 << 10, "sm_90a", 0.125),  # shared memory: 1 block
    (1024, 32, 0, "sm_86", 32 / 48),  # one block of 32 warps fits into 48
    (32, 16, 0, "sm_80", 0.5),  # 32 blocks of one warp
])
def test_occupancy(threads: int, registers: int, shared: int, target: str, share: float) -> None:
    assert occupancy({"threads": threads, "registers": registers, "shared": shared}, target) == pytest.approx(share)


def test_unknown_processors_have_none() -> None:
    assert occupancy({"threads": 64, "registers": 32, "shared": 0}, "gfx942") is None
