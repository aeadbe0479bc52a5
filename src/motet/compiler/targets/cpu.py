"""CPU targets: the properties of each CPU level that code generators need."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class CpuTarget:
    """A CPU level. `features` is LLVM's feature string; `requires` are the features that must be present at load time.

    A level with a `base` extends it by instructions for some kernels: if both are compiled for, it has separate code
    for those kernels, shares the base's code for the others, and is omitted for a program without such kernels.

    Kernels of a level read packed constants in the panels of level `packs_as`, if given, so that an artifact for both
    levels has them once."""

    name: str
    triple: str
    cpu: str
    features: str
    requires: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    l1: int
    l2: int
    abi: str = ""
    base: str = ""
    packs_as: str = ""
    family: str = "host"

    def has(self, feature: str) -> bool:
        """Whether code may use LLVM's `feature` unconditionally."""
        return f"+{feature}" in self.features.split(",")

    @property
    def scales(self) -> bool:
        """Whether one instruction scales vectors by powers of two (AVX-512's vscalef)."""
        return "avx512f" in self.requires

    @property
    def gathers(self) -> bool:
        """Whether LLVM uses gather instructions (not AVX2's, which are slow on many CPUs)."""
        return not {"avx512f", "v", "sve"}.isdisjoint(self.requires)

    @property
    def widest_bits(self) -> int:
        """The most bits that one instruction computes; those of RISC-V have up to eight registers."""
        return self.vector_bits * (8 if "v" in self.requires else 1)

    def lanes(self, dtype_bits: int) -> int:
        """The elements of `dtype_bits` bits in one vector register."""
        return max(1, self.vector_bits // dtype_bits)


X86_64_V3 = CpuTarget(
    name="x86-64-v3", triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features="",
    requires=("avx2", "fma", "f16c", "bmi2", "lzcnt", "movbe"),
    vector_bits=256, vector_registers=16, l1=32 << 10, l2=512 << 10, packs_as="x86-64-v4",
)
X86_64_V4 = CpuTarget(
    name="x86-64-v4", triple="x86_64-unknown-linux-gnu", cpu="x86-64-v4", features="-prefer-256-bit",
    requires=("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma", "f16c", "bmi2"),
    vector_bits=512, vector_registers=32, l1=32 << 10, l2=1 << 20,
)
X86_64_V4_VNNI = replace(
    X86_64_V4, name="x86-64-v4-vnni", base=X86_64_V4.name,
    features=f"{X86_64_V4.features},+avx512vnni", requires=(*X86_64_V4.requires, "avx512vnni"),
)
X86_64_V4_BF16 = replace(
    X86_64_V4_VNNI, name="x86-64-v4-bf16", base=X86_64_V4_VNNI.name,
    features=f"{X86_64_V4_VNNI.features},+avx512bf16", requires=(*X86_64_V4_VNNI.requires, "avx512bf16"),
)
X86_64_V4_AMX = replace(
    X86_64_V4_BF16, name="x86-64-v4-amx", base=X86_64_V4.name,
    features=f"{X86_64_V4_BF16.features},+amx-tile,+amx-int8,+amx-bf16",
    requires=(*X86_64_V4_BF16.requires, "amx-tile", "amx-int8", "amx-bf16"), l1=48 << 10,
)
AARCH64 = CpuTarget(
    name="aarch64", triple="aarch64-unknown-linux-gnu", cpu="generic", features="+neon,+fp-armv8",
    requires=(), vector_bits=128, vector_registers=32, l1=64 << 10, l2=512 << 10,
)
RISCV64 = CpuTarget(
    name="riscv64", triple="riscv64-unknown-linux-gnu", cpu="generic-rv64", features="+m,+a,+f,+d,+c",
    requires=(), vector_bits=64, vector_registers=16, l1=32 << 10, l2=256 << 10, abi="lp64d",
)
RISCV64_V = CpuTarget(
    name="riscv64-v", triple="riscv64-unknown-linux-gnu", cpu="generic-rv64", features="+m,+a,+f,+d,+c,+v,+zvl256b",
    requires=("v",), vector_bits=256, vector_registers=32, l1=32 << 10, l2=256 << 10, abi="lp64d",
)

CPU_TARGETS = {
    target.name: target
    for target in (X86_64_V4, X86_64_V4_VNNI, X86_64_V4_BF16, X86_64_V4_AMX, X86_64_V3, AARCH64, RISCV64, RISCV64_V)
}
# The default levels of host programs, in order of preference.
DEFAULT_TARGETS = ("x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4-vnni", "x86-64-v4", "x86-64-v3")


def base_of(target: CpuTarget) -> CpuTarget:
    """The level that `target` extends; `target` itself if it extends none."""
    return CPU_TARGETS[target.base] if target.base else target


def multiplies(target: CpuTarget, dtype: str) -> bool:
    """Whether `target` has instructions for products of `dtype`: a 16-bit float with sums in f32, or int8 with sums in
    32 bits."""
    if dtype == "int8":
        return target.triple.startswith("x86_64")
    return dtype == "bf16" and target.has("avx512bf16")


def bases_of(target: CpuTarget) -> tuple[str, ...]:
    """The names of the levels that `target` extends, the nearest first."""
    return (target.base, *bases_of(CPU_TARGETS[target.base])) if target.base else ()


def lowest_base(target: CpuTarget) -> CpuTarget:
    """The last level of `bases_of(target)`; `target` itself if it extends none."""
    return lowest_base(CPU_TARGETS[target.base]) if target.base else target
