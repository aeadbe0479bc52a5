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


_SPIRV = SpirvTarget(
    name="spirv64", triple="spirv64-unknown-unknown", cpu="", features="", requires=(),
    vector_bits=512, vector_registers=32, l1=32 << 10, l2=1 << 20, family="opencl",
)
_SOURCE = CpuTarget(
    name="opencl-c", triple="opencl-c-unknown-unknown", cpu="", features="", requires=(),
    vector_bits=256, vector_registers=16, l1=32 << 10, l2=1 << 20, family="opencl",
)
_WIDE_SOURCE = replace(
    _SOURCE, name="opencl-c-512", requires=("vectors-of-512-bits",), vector_bits=512, vector_registers=32,
)
OPENCL = Family(
    "opencl", {target.name: target for target in (_SPIRV, _WIDE_SOURCE, _SOURCE)},
    (_SPIRV.name, _WIDE_SOURCE.name, _SOURCE.name), options=("queues", "svm"),
)
