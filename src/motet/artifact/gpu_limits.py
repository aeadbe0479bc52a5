"""What a GPU of a family can run at once, as far as reports of launches need it."""

from __future__ import annotations

from dataclasses import dataclass

_BLOCK = 1024  # threads


@dataclass(frozen=True)
class GpuLimits:
    """`warp` is the threads that run in step, `registers` the 32-bit registers of an SM or compute unit."""

    warp: int
    registers: int

    def most_threads(self, registers: int) -> int:
        """The threads of the largest block of a kernel whose threads have so many registers, which are given out in
        eights to whole warps."""
        if registers == 0:
            return _BLOCK
        return min(_BLOCK, self.registers // (-(-registers // 8) * 8) // self.warp * self.warp)


GPU_LIMITS = {"cuda": GpuLimits(32, 64 << 10), "hip": GpuLimits(64, 128 << 10)}
