"""AMD GPUs of the CDNA line: machine code can be compiled and inspected; Motet has no driver for them yet.

Local data share per work-group: AMD Instinct MI300 and MI350 ISA reference guides.
"""

from __future__ import annotations

from motet.compiler.targets.family import Family
from motet.compiler.targets.gpu import GpuTarget

_TRIPLE = "amdgcn-amd-amdhsa"
_TARGETS = (
    GpuTarget("gfx942", "hip", _TRIPLE, "gfx942", "hsaco", 64, 64 << 10, 304, registers=512),
    GpuTarget("gfx950", "hip", _TRIPLE, "gfx950", "hsaco", 64, 160 << 10, 256, registers=512),
)
HIP = Family("hip", {target.name: target for target in _TARGETS}, ("gfx942",), key="arch", codegen="triton")
