"""NVIDIA GPUs: machine code for each architecture, and PTX for future ones.

Shared memory per block: CUDA C++ Programming Guide, "Compute Capabilities". Rates are derived from the peaks in
NVIDIA's data sheets of a typical GPU of each architecture and the fraction that Motet's kernels reach on an H100; the
rates of bus and driver were measured on a machine with an H200.
"""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.targets.family import Family
from motet.compiler.targets.gpu import PRECISIONS, GpuTarget
from motet.compiler.targets.rates import Rates

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


def _rates(teraflops: float, terabytes: float, bus: float) -> Rates:
    """The rates of a GPU with the given peak f32 operations and bytes per second; `bus` is in gigabytes per second."""
    peak = teraflops * 1e12
    return Rates(
        contraction=0.6 * peak, convolution=0.4 * peak, elementwise=0.2 * peak, reduction=0.2 * peak,
        generic=0.01 * peak, memory=0.88e12 * terabytes, launch=2.5e-6, submit=1e-5, upload=bus * 1e9,
        download=bus * 1e9, latency=1.2e-5, peer=bus * 1e9,
    )


_RATES: Mapping[str, Rates] = {
    "sm_80": _rates(19.5, 1.9, 14), "sm_86": _rates(35.6, 0.94, 14), "sm_89": _rates(82.6, 1.0, 14),
    "sm_90a": _rates(67, 3.35, 28), "sm_100a": _rates(75, 8, 28), "sm_103a": _rates(75, 8, 28),
    "sm_120a": _rates(104.8, 1.79, 28), "ptx80": _rates(19.5, 1.9, 14),
}
CUDA = Family(
    "cuda", {target.name: target for target in _TARGETS}, ("sm_90a", "sm_80", "ptx80"), key="arch",
    options=("queues", "check"), precisions=PRECISIONS, codegen="triton", rates=_RATES["sm_90a"], target_rates=_RATES,
)
