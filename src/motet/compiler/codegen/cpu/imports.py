"""The symbols that objects import, and those available where they are loaded.

On hosts the loader searches the C library, the mathematics library and libgcc (`runtime/drivers/host/loader.py`); on
the RISC-V accelerator, the firmware's library. LLVM inserts calls that are not in its input, so that an object may not
be loadable anywhere unless its imports are checked.
"""

from __future__ import annotations

import functools
from typing import TypeGuard

from motet.compiler.codegen.backend import UnloadableCode
from motet.compiler.codegen.llvm.opencl_c.program import refusal
from motet.compiler.codegen.llvm.spirv import spirv_refusal
from motet.compiler.targets.cpu import CpuTarget
from motet.compiler.targets.embedded import FAMILY as EMBEDDED
from motet.compiler.targets.opencl import SourceTarget
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf.structures import SHN_UNDEF, STB_WEAK
from motet.runtime.drivers.embedded.image import shipped_image
from motet.runtime.drivers.embedded.machines import machine_of_cpu
from motet.runtime.drivers.riscv.installing import library_symbols

_C = "memcmp memcpy memmove memset malloc calloc realloc aligned_alloc free abort puts"
# Functions of <math.h> and <complex.h>; their float versions end in f.
_REAL = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs floor fma "
    "fmax fmin fmod frexp hypot ldexp log log10 log1p log2 modf nearbyint pow remainder rint round roundeven sin "
    "sincos sinh sqrt tan tanh tgamma lgamma trunc"
)
_COMPLEX = (
    "cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow creal csin csinh csqrt "
    "ctan ctanh"
)
# Integers of 128 bits, in libgcc on every 64-bit machine.
_INTEGERS = (
    "__ashlti3 __ashrti3 __divti3 __fixdfti __fixsfti __fixunsdfti __fixunssfti __floattidf __floattisf "
    "__floatuntidf __floatuntisf __lshrti3 __modti3 __multi3 __udivti3 __umodti3"
)

ELSEWHERE = "let its device fall back: --device NAME=opencl,@cpu"


def imported(code: bytes, name: str) -> set[str]:
    """The symbols that the object `code` imports; errors call it `name`."""
    item = elf.read_object(code, name)
    used = {entry.symbol for entries in item.relocations.values() for entry in entries}
    symbols = [item.symbols[number] for number in used]
    return {
        symbol.name for symbol in symbols
        if symbol.section == SHN_UNDEF and symbol.name and symbol.binding != STB_WEAK
    }


def check_imports(symbol: str, code: bytes, target: CpuTarget) -> None:
    """Raise UnloadableCode if the object of the kernel `symbol` imports a symbol that is not available, or if OpenCL
    lacks something in it. `programs.py` checks the imports of SPIR-V."""
    if is_source(target) or is_spirv(target):
        if reason := refusal(code) if is_source(target) else spirv_refusal(code):
            raise UnloadableCode(
                f"kernel {symbol}: its code for {target.family}:{target.name} has {reason}, which OpenCL lacks; "
                f"{ELSEWHERE}", symbol,
            )
        return
    missing = sorted(imported(code, symbol) - available(target))
    if not missing:
        return
    if is_bare(target):
        where = "the agent's library" if target.family == EMBEDDED else "the accelerator's library"
        instead = f"place it on the host, or let its device fall back to that: --device NAME={target.family},@cpu"
    else:
        where, instead = "the C library, the mathematics library or libgcc", "this is a defect of motet"
    raise UnloadableCode(
        f"kernel {symbol}: its code for {target.family}:{target.name} calls {', '.join(missing)}; expected functions "
        f"of {where}; {instead}", symbol,
    )


def available(target: CpuTarget) -> frozenset[str]:
    """The symbols available wherever code for `target` is loaded."""
    if target.family == EMBEDDED and (machine := machine_of_cpu(target.name)):
        return frozenset(shipped_image(machine.image).library)
    return frozenset(library_symbols()) if is_bare(target) else _libraries()


def is_bare(target: CpuTarget) -> bool:
    """Whether code for `target` runs without an operating system and its libraries."""
    return "-none-" in target.triple


def is_spirv(target: CpuTarget) -> bool:
    """Whether code for `target` is SPIR-V, which the device's platform compiles."""
    return target.triple.startswith("spirv")


def is_source(target: CpuTarget) -> TypeGuard[SourceTarget]:
    """Whether code for `target` is OpenCL C."""
    return isinstance(target, SourceTarget)


@functools.cache
def _libraries() -> frozenset[str]:
    names = {*_C.split(), *_INTEGERS.split()}
    for name in (*_REAL.split(), *_COMPLEX.split()):
        names |= {name, f"{name}f"}
    return frozenset(names)
