"""Processors without an operating system, most of them with addresses of 32 bits: Cortex-M and RISC-V.

Code for Cortex-M passes floating-point arguments in integer registers (the base procedure call standard), as LLVM does
for the functions that it calls; kernels have no such arguments.
"""

from __future__ import annotations

from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Family
from motet.compiler.targets.rates import Rates

FAMILY = "embedded"

_M55 = CpuTarget(
    name="cortex-m55", triple="thumbv8.1m.main-unknown-none-eabi", cpu="cortex-m55", features="", requires=("mve.fp",),
    vector_bits=128, vector_registers=8, l1=32 << 10, l2=256 << 10, family=FAMILY,
)
_M7 = CpuTarget(
    name="cortex-m7", triple="thumbv7em-unknown-none-eabi", cpu="cortex-m7", features="", requires=("fp64",),
    vector_bits=64, vector_registers=16, l1=16 << 10, l2=128 << 10, family=FAMILY,
)
_M4 = CpuTarget(
    name="cortex-m4", triple="thumbv7em-unknown-none-eabi", cpu="cortex-m4", features="", requires=(),
    vector_bits=64, vector_registers=16, l1=16 << 10, l2=128 << 10, family=FAMILY,
)
_RV64 = CpuTarget(
    name="rv64gc", triple="riscv64-unknown-none-elf", cpu="generic-rv64", features="+m,+a,+f,+d,+c", requires=(),
    vector_bits=64, vector_registers=16, l1=32 << 10, l2=256 << 10, abi="lp64d", family=FAMILY,
)
_RV32 = CpuTarget(
    name="rv32gc", triple="riscv32-unknown-none-elf", cpu="generic-rv32", features="+m,+a,+f,+d,+c", requires=(),
    vector_bits=64, vector_registers=16, l1=32 << 10, l2=256 << 10, abi="ilp32d", family=FAMILY,
)
# The rate of products is measured on QEMU's mps3-an547; the others are estimates. A debugger's stub limits transfers.
_RATES = Rates(
    contraction=1.2e8, convolution=1.2e8, elementwise=1e8, reduction=1e7, generic=5e7, memory=2e8,
    launch=1e-4, submit=5e-3, upload=3e6, download=3e6, latency=1e-3,
)
EMBEDDED = Family(
    FAMILY, {target.name: target for target in (_M55, _M7, _M4, _RV64, _RV32)}, ("cortex-m55", "rv64gc"),
    rates=_RATES, options=("machine",),
    implied={"machine": {
        "mps3-an547": ("cortex-m55",), "mps2-an500": ("cortex-m7",), "mps2-an386": ("cortex-m4",),
        "virt": ("rv64gc",), "virt32": ("rv32gc",),
    }},
)
