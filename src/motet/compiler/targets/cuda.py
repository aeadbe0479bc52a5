"""NVIDIA's GPUs: machine code for each architecture, and PTX for those that are still to come.

Shared memory per block: CUDA C++ Programming Guide, "Compute Capabilities".
"""

from __future__ import annotations

from motet.compiler.targets.family import Family
from motet.compiler.targets.gpu import PRECISIONS, GpuTarget

_TRIPLE = "nvptx64-nvidia-cuda"


def _target(name: str, capability: int, shared: int, processors: int) -> GpuTarget:
    return GpuTarget(name, "cuda", _TRIPLE, capability, "cubin", 32, shared, processors)


_TARGETS = (
    _target("sm_80", 80, 163 << 10, 108),
    _target("sm_86", 86, 99 << 10, 84),
    _target("sm_89", 89, 99 << 10, 128),
    _target("sm_90a", 90, 227 << 10, 132),
    _target("sm_100a", 100, 227 << 10, 148),
    _target("sm_103a", 103, 227 << 10, 148),
    _target("sm_120a", 120, 99 << 10, 170),
    GpuTarget("ptx80", "cuda", _TRIPLE, 80, "ptx", 32, 99 << 10, 108, ptx=80),
)
CUDA = Family(
    "cuda", {target.name: target for target in _TARGETS}, ("sm_90a", "sm_80", "ptx80"), key="arch",
    options=("queues", "check"), precisions=PRECISIONS,
)
