"""Limits of the GPUs of a family or target, for reports of launches."""

from __future__ import annotations

from dataclasses import dataclass

_BLOCK = 1024  # threads
_FILES = 4  # register files of a processor, each for the warps of one scheduler


@dataclass(frozen=True)
class GpuLimits:
    """`warp` is the number of threads of a warp, `registers` the 32-bit registers of an SM, of a compute unit of CDNA
    or of a work-group processor of RDNA. A thread's registers are allocated in multiples of `unit`."""

    warp: int
    registers: int
    unit: int = 8

    def most_threads(self, registers: int) -> int:
        """The threads of the largest block of a kernel with `registers` registers per thread; registers are allocated
        to whole warps, each in one of the register files."""
        if registers == 0:
            return _BLOCK
        allocated = -(-registers // self.unit) * self.unit * self.warp
        return min(_BLOCK, self.registers // _FILES // allocated * _FILES * self.warp)


_FAMILIES = {"cuda": GpuLimits(32, 64 << 10), "hip": GpuLimits(64, 128 << 10)}
# Source: LLVM's AMDGPU back end, `getVGPRAllocGranule` and `getTotalNumVGPRs`, in wavefronts of 32.
_RDNA = GpuLimits(32, 192 << 10, unit=24)
_TARGETS = {"gfx1100": _RDNA, "gfx1201": _RDNA}


def gpu_limits(family: str, target: str) -> GpuLimits | None:
    """None for devices without such limits."""
    return _TARGETS.get(target, _FAMILIES.get(family))
