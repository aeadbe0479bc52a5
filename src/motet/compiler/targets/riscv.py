"""The RISC-V accelerator's harts: bare metal, with a separate target for each vector length."""

from __future__ import annotations

from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.family import Family

VECTOR_BITS = (128, 256, 512, 1024)

_SCALAR = CpuTarget(
    name="rv64gc", triple="riscv64-unknown-none-elf", cpu="generic-rv64", features="+m,+a,+f,+d,+c",
    requires=(), vector_bits=64, vector_registers=16, l1=32 << 10, l2=256 << 10, abi="lp64d", family="riscv",
)
_VECTOR = tuple(
    CpuTarget(
        name=f"rv64gcv{bits}", triple=_SCALAR.triple, cpu=_SCALAR.cpu, features=f"{_SCALAR.features},+v,+zvl{bits}b",
        requires=("v", f"zvl{bits}b"), vector_bits=bits, vector_registers=32, l1=_SCALAR.l1, l2=_SCALAR.l2,
        abi=_SCALAR.abi, family="riscv",
    )
    for bits in VECTOR_BITS
)
RISCV = Family(
    "riscv", {target.name: target for target in (_SCALAR, *_VECTOR)}, ("rv64gcv128", "rv64gc"),
    options=("harts", "memory", "vlen", "guard", "timeout"),
    implied={"vlen": {"0": (_SCALAR.name,)} | {str(bits): (f"rv64gcv{bits}",) for bits in VECTOR_BITS}},
)
