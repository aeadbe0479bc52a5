"""OpenCL platforms that take SPIR-V: the host's kernels, each work-item with tasks of its own, for processors."""

from __future__ import annotations

from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Family

_SPIRV = CpuTarget(
    name="spirv64", triple="spirv64-unknown-unknown", cpu="", features="", requires=(),
    vector_bits=512, vector_registers=32, l1=32 << 10, l2=1 << 20, family="opencl",
)
OPENCL = Family("opencl", {_SPIRV.name: _SPIRV}, (_SPIRV.name,), options=("queues",))
