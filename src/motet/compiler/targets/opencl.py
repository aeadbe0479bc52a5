"""OpenCL platforms: the host's kernels, each work-item with tasks, for processors; in SPIR-V or in OpenCL C."""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Family

_MOST_LANES = 16  # of a vector in OpenCL


@dataclass(frozen=True)
class SpirvTarget(CpuTarget):
    """SPIR-V for processors."""

    def lanes(self, dtype_bits: int) -> int:
        return min(_MOST_LANES, super().lanes(dtype_bits))


@dataclass(frozen=True)
class SourceTarget(CpuTarget):
    """OpenCL C for processors, with vectors of at most `widest` lanes."""

    widest: int = 1


_SPIRV = SpirvTarget(
    name="spirv64", triple="spirv64-unknown-unknown", cpu="", features="", requires=(),
    vector_bits=512, vector_registers=32, l1=32 << 10, l2=1 << 20, family="opencl",
)
_SOURCE = SourceTarget(
    name="opencl-c", triple="opencl-c-unknown-unknown", cpu="", features="", requires=(),
    vector_bits=256, vector_registers=16, l1=32 << 10, l2=1 << 20, family="opencl", widest=8,
)
_VECTORS = (
    replace(_SOURCE, name="opencl-c-512", vector_bits=512, vector_registers=32, widest=16),
    _SOURCE,
    replace(_SOURCE, name="opencl-c-128", vector_bits=128, widest=4),
)
_TARGETS = (
    _SPIRV,
    *(replace(each, requires=(f"vectors-of-{each.vector_bits}-bits",)) for each in _VECTORS),
    replace(_SOURCE, name="opencl-c-scalar", vector_bits=64, widest=1),
)
OPENCL = Family(
    "opencl", {target.name: target for target in _TARGETS}, tuple(target.name for target in _TARGETS),
    options=("queues", "svm"),
)
