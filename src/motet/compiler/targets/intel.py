"""Intel's GPUs: native code (zebin) for each named device, with SPIR-V next to it, and SPIR-V for all others.

Sources: registers, sub-groups, local memory and work-groups: Intel's "oneAPI GPU Optimization Guide", the sections on
Xe architecture, sub-groups and the register file; matrix engine: the OpenCL extension
`cl_intel_subgroup_matrix_multiply_accumulate`. Rates are derived from peaks in data sheets and the fractions that
Motet's kernels reach on other GPUs; none was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from motet.artifact.intel_gpus import INTEL_GPUS, canonical
from motet.compiler.targets.family import Family
from motet.compiler.targets.gpu import GpuTarget, XpuDevice
from motet.compiler.targets.rates import Rates

PRECISIONS = ("ieee", "tf32")  # tf32 on matrix engines; other devices multiply in full precision
REGISTERS = ("default", "small", "large", "auto")
SUB_GROUPS = ("auto", "16", "32")
ANY = "spirv"  # the target for all devices that take SPIR-V and have sub-groups
_TRIPLE = "spirv64-unknown-unknown"
_XE, _XE_HPG, _XE_HPC = (1 << 24 | minor for minor in (0, 2, 4))  # `iga_gen_t` of `iga.h`
# Devices without a matrix engine that triton-xpu uses.
_XE_LP = XpuDevice(
    device="tgllp", sub_groups=(16, 32), work_group=512, register_bytes=32, register_files=(128,), fp64=False,
    isa=_XE,
)
_DG2 = replace(_XE_LP, device="acm-g10", work_group=1024, register_files=(128, 256), isa=_XE_HPG)
_PVC = XpuDevice(
    device="pvc", sub_groups=(16, 32), work_group=1024, register_bytes=64, matrix_engine=True, block_loads=True,
    bfloat16=True, isa=_XE_HPC,
)
# What devices with sub-groups have, processors among them.
_ANY = XpuDevice(device="", sub_groups=(16, 32), work_group=512, register_bytes=32, register_files=(128,))


def _target(name: str, xpu: XpuDevice, shared: int, processors: int) -> GpuTarget:
    gpu = INTEL_GPUS[name]
    return GpuTarget(
        name, "intel", _TRIPLE, gpu.version, "zebin", 16, shared, processors, registers=128,
        needs=(gpu.feature,), xpu=replace(xpu, device=gpu.ocloc),
    )


_TARGETS = (
    _target("pvc", _PVC, 128 << 10, 128),
    _target("dg2", _DG2, 64 << 10, 32),
    _target("acm-g11", _DG2, 64 << 10, 8),
    _target("acm-g12", _DG2, 64 << 10, 16),
    _target("dg1", _XE_LP, 64 << 10, 6),
    _target("tgllp", _XE_LP, 64 << 10, 6),
    _target("rkl", _XE_LP, 64 << 10, 2),
    _target("adl-s", _XE_LP, 64 << 10, 2),
    _target("adl-p", _XE_LP, 64 << 10, 6),
    _target("adl-n", _XE_LP, 64 << 10, 2),
    GpuTarget(
        ANY, "intel", _TRIPLE, ANY, "spv", 16, 32 << 10, 32, registers=128, needs=("sub-groups-of-16",), xpu=_ANY,
    ),
)


def _rates(teraflops: float, terabytes: float, bus: float) -> Rates:
    """The rates of a GPU with the given peak f32 operations and bytes per second; `bus` is in gigabytes per second."""
    peak = teraflops * 1e12
    return Rates(
        contraction=0.5 * peak, convolution=0.3 * peak, elementwise=0.2 * peak, reduction=0.2 * peak,
        generic=0.01 * peak, memory=0.8e12 * terabytes, launch=5e-6, submit=2e-5, upload=bus * 1e9,
        download=bus * 1e9, latency=2e-5, peer=bus * 1e9,
    )


_SMALL = _rates(2.0, 0.06, 20)
_RATES: Mapping[str, Rates] = {
    "pvc": _rates(45.0, 2.0, 25), "dg2": _rates(17.0, 0.5, 20), "acm-g11": _rates(4.2, 0.19, 10),
    "acm-g12": _rates(8.0, 0.26, 10), ANY: _rates(1.0, 0.05, 10),
    **dict.fromkeys(("dg1", "tgllp", "rkl", "adl-s", "adl-p", "adl-n"), _SMALL),
}
INTEL = Family(
    "intel", {target.name: target for target in _TARGETS}, ("pvc", "dg2"), key="device", codegen="triton",
    options=("queues",), precisions=PRECISIONS, registers=REGISTERS, sub_groups=SUB_GROUPS, canonical=canonical,
    always=(ANY,), rates=_RATES["pvc"], target_rates=_RATES,
)
