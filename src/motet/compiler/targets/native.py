"""The CPU of the compiling machine as a target; the only target that depends on this machine."""

from __future__ import annotations

import re

from motet.compiler.targets.cpu import (
    AARCH64,
    CPU_TARGETS,
    RISCV64,
    RISCV64_V,
    X86_64_V3,
    X86_64_V4,
    CpuTarget,
)
from motet.compiler.targets.host import host_processor, host_triple
from motet.cpu_features import allow
from motet.errors import OptionError

NATIVE = "native"
# Features that LLVM's instruction selection, or a code generator, may use implicitly: a machine must have all of them
# to run the code. Other features of a CPU (`sha`, `rdrnd`, …) are used by intrinsics only.
_SELECTABLE = re.compile(
    r"avx(?!10).*|amx-.*|sse.*|ssse3|fma4?|f16c|bmi2?|lzcnt|movbe|popcnt|gfni|xop|tbm"
    r"|neon|fp-armv8|fullfp16|bf16|dotprod|i8mm|lse|rdm|sve.*|sme.*|[mafdcv]|z[a-z0-9]+"
)


def native_target() -> CpuTarget:
    """This machine's CPU: the best known level that it supports, with its features beyond that level.

    Code for it runs on machines with all features in `requires`. Raises `OptionError` for a CPU below every known
    level.
    """
    cpu, features = host_processor()
    if not allow(features):  # AMX, which the system may not grant
        features = frozenset(name for name in features if not name.startswith("amx"))
    triple = host_triple()
    level = _level(triple, features)
    flags = [f"+{name}" for name in sorted(features)]
    if level is X86_64_V4:
        flags.append("-prefer-256-bit")  # the tuning of some CPUs would halve the vectors
    return CpuTarget(
        name=NATIVE, triple=triple, cpu=cpu, features=",".join(flags),
        requires=tuple(sorted(filter(_SELECTABLE.fullmatch, features))),
        vector_bits=level.vector_bits, vector_registers=level.vector_registers, l1=level.l1, l2=level.l2,
        abi=level.abi,
    )


def _level(triple: str, features: frozenset[str]) -> CpuTarget:
    architecture = triple.partition("-")[0]
    candidates = {
        "x86_64": (X86_64_V4, X86_64_V3), "aarch64": (AARCH64,), "arm64": (AARCH64,),
        "riscv64": (RISCV64_V, RISCV64),
    }.get(architecture, ())
    for level in candidates:
        if features.issuperset(level.requires):
            return level
    known = ", ".join(level.name for level in candidates) or "none for this architecture"
    raise OptionError(
        f"cpu target {NATIVE}: this machine ({triple}) reaches no processor level that motet compiles for"
        f" ({known}); name a target to compile for another machine"
    )


def resolve_cpu_target(name: str) -> CpuTarget:
    """The CPU target called `name`, including `native`. Raises `OptionError`, which lists the known names."""
    if name == NATIVE:
        return native_target()
    target = CPU_TARGETS.get(name)
    if target is None:
        known = ", ".join([*CPU_TARGETS, NATIVE])
        raise OptionError(f"cpu target {name!r}: there is none of that name; known: {known}")
    return target
