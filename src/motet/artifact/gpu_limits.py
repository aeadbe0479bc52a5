"""Limits of the GPUs of a family, for reports of launches."""

from __future__ import annotations

from dataclasses import dataclass

_BLOCK = 1024  # threads


@dataclass(frozen=True)
class GpuLimits:
    """`warp` is the number of threads of a warp, `registers` the 32-bit registers of an SM or compute unit."""

    warp: int
    registers: int

    def most_threads(self, registers: int) -> int:
        """The threads of the largest block of a kernel with `registers` registers per thread; registers are allocated
        to whole warps in multiples of eight."""
        if registers == 0:
            return _BLOCK
        return min(_BLOCK, self.registers // (-(-registers // 8) * 8) // self.warp * self.warp)


GPU_LIMITS = {"cuda": GpuLimits(32, 64 << 10), "hip": GpuLimits(64, 128 << 10)}
