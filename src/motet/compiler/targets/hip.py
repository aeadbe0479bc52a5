"""AMD's GPUs of the CDNA and RDNA lines: machine code can be compiled and inspected; Motet has no driver for them yet.

A processor is a compute unit of CDNA, and a work-group processor (two compute units) of RDNA, on which Triton's
compiler places work-groups; `registers` are those that one lane can have, including accumulation registers on CDNA.
Sources: ISA reference guides of AMD Instinct MI200, MI300 and MI350, RDNA3 and RDNA4 (wavefronts, local data share of a
work-group, vector registers); ROCm, "Accelerator and GPU hardware specifications" (compute units: of a die of MI250, of
MI300X, of MI350X, of Radeon RX 7900 XTX and of RX 9070 XT).
"""

from __future__ import annotations

from motet.compiler.targets.family import Family
from motet.compiler.targets.gpu import GpuTarget

_TRIPLE = "amdgcn-amd-amdhsa"


def _cdna(name: str, shared: int, processors: int) -> GpuTarget:
    return GpuTarget(name, "hip", _TRIPLE, name, "hsaco", 64, shared, processors, registers=512)


def _rdna(name: str, processors: int) -> GpuTarget:
    return GpuTarget(name, "hip", _TRIPLE, name, "hsaco", 32, 64 << 10, processors, registers=256)


_TARGETS = (
    _cdna("gfx942", 64 << 10, 304), _cdna("gfx950", 160 << 10, 256), _cdna("gfx90a", 64 << 10, 104),
    _rdna("gfx1100", 48), _rdna("gfx1201", 32),
)
HIP = Family("hip", {target.name: target for target in _TARGETS}, ("gfx942",), key="arch", codegen="triton")
