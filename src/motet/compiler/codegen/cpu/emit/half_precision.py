"""Conversions of 16-bit floats for CPUs without instructions for them.

Without such instructions LLVM calls functions of the compiler's run-time library, which is not available on every
machine (those for bfloat16, and libgcc's for RISC-V, begin with GCC 13). An object that needs such a function therefore
contains it; equal definitions in several objects are merged. The bit manipulation follows F. Giesen's `half_to_float`
and `float_to_half_fast3_rtne` (public domain). Doubles are first rounded to odd, so that the result is rounded only
once (Boldo and Melquiond, "When double rounding is odd", 2005).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from motet.compiler.targets.cpu import CpuTarget

_HALF = re.compile(r"\bhalf\b")
_DOUBLE = re.compile(r"\bdouble\b")

_LINKAGE = "linkonce_odr hidden"

# Normal numbers are rebiased. Subnormal numbers are integers times 2^-24, exact in a float. A NaN becomes quiet.
_EXTEND = """
define {linkage} float @__extendhfsf2(half %x) nounwind {{
  %bits16 = bitcast half %x to i16
  %bits = zext i16 %bits16 to i32
  %signbit = and i32 %bits, 32768
  %sign = shl i32 %signbit, 16
  %size = and i32 %bits, 32767
  %shifted = shl i32 %size, 13
  %normal = add i32 %shifted, 939524096
  %count = uitofp i32 %size to float
  %small = fmul float %count, 0x3E70000000000000
  %small_bits = bitcast float %small to i32
  %is_nan = icmp ugt i32 %size, 31744
  %quiet = select i1 %is_nan, i32 2143289344, i32 2139095040
  %special = or i32 %shifted, %quiet
  %is_small = icmp ult i32 %size, 1024
  %finite = select i1 %is_small, i32 %small_bits, i32 %normal
  %is_special = icmp uge i32 %size, 31744
  %magnitude = select i1 %is_special, i32 %special, i32 %finite
  %result = or i32 %magnitude, %sign
  %float = bitcast i32 %result to float
  ret float %float
}}
"""

# The last place of 0.5f is 2^-24, that of subnormal halves, so that an addition of 0.5f rounds to it.
_TRUNCATE = """
define {linkage} half @__truncsfhf2(float %x) nounwind {{
  %bits = bitcast float %x to i32
  %top = lshr i32 %bits, 16
  %sign = and i32 %top, 32768
  %size = and i32 %bits, 2147483647
  %magnitude = bitcast i32 %size to float
  %shifted = lshr i32 %size, 13
  %odd = and i32 %shifted, 1
  %biased = add i32 %size, -939520001
  %rounded = add i32 %biased, %odd
  %normal = lshr i32 %rounded, 13
  %sum = fadd float %magnitude, 5.0e-1
  %sum_bits = bitcast float %sum to i32
  %small = sub i32 %sum_bits, 1056964608
  %is_small = icmp ult i32 %size, 947912704
  %finite = select i1 %is_small, i32 %small, i32 %normal
  %is_large = icmp uge i32 %size, 1199570944
  %bounded = select i1 %is_large, i32 31744, i32 %finite
  %payload = and i32 %shifted, 511
  %nan = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %size, 2139095040
  %chosen = select i1 %is_nan, i32 %nan, i32 %bounded
  %result = or i32 %chosen, %sign
  %result16 = trunc i32 %result to i16
  %half = bitcast i16 %result16 to half
  ret half %half
}}
"""

# Rounding to odd: an inexact float whose last bit is even is replaced by its odd neighbour towards the double.
_TRUNCATE_DOUBLE = """
define {linkage} {narrow} @{name}(double %x) nounwind {{
  %float = fptrunc double %x to float
  %back = fpext float %float to double
  %inexact = fcmp one double %back, %x
  %bits = bitcast float %float to i32
  %last = and i32 %bits, 1
  %even = icmp eq i32 %last, 0
  %move = and i1 %inexact, %even
  %back_bits = bitcast double %back to i64
  %x_bits = bitcast double %x to i64
  %back_size = and i64 %back_bits, 9223372036854775807
  %x_size = and i64 %x_bits, 9223372036854775807
  %beyond = icmp ugt i64 %back_size, %x_size
  %step = select i1 %beyond, i32 -1, i32 1
  %moved = add i32 %bits, %step
  %chosen = select i1 %move, i32 %moved, i32 %bits
  %odd = bitcast i32 %chosen to float
  %result = fptrunc float %odd to {narrow}
  ret {narrow} %result
}}
"""


# A carry out of the fraction increments the exponent, as it should.
_TRUNCATE_BRAIN = """
define {linkage} bfloat @__truncsfbf2(float %x) nounwind {{
  %bits = bitcast float %x to i32
  %top = lshr i32 %bits, 16
  %quiet = or i32 %top, 64
  %odd = and i32 %top, 1
  %bias = add i32 %odd, 32767
  %biased = add i32 %bits, %bias
  %rounded = lshr i32 %biased, 16
  %size = and i32 %bits, 2147483647
  %is_nan = icmp ugt i32 %size, 2139095040
  %chosen = select i1 %is_nan, i32 %quiet, i32 %rounded
  %result = trunc i32 %chosen to i16
  %brain = bitcast i16 %result to bfloat
  ret bfloat %brain
}}
"""

CONVERSIONS = {
    "__extendhfsf2": _EXTEND.format(linkage=_LINKAGE),
    "__truncsfhf2": _TRUNCATE.format(linkage=_LINKAGE),
    "__truncdfhf2": _TRUNCATE_DOUBLE.format(linkage=_LINKAGE, name="__truncdfhf2", narrow="half"),
    "__truncsfbf2": _TRUNCATE_BRAIN.format(linkage=_LINKAGE),
    "__truncdfbf2": _TRUNCATE_DOUBLE.format(linkage=_LINKAGE, name="__truncdfbf2", narrow="bfloat"),
}


def likely_conversions(llvm: str, target: CpuTarget) -> set[str]:
    """The functions of `CONVERSIONS` that code for `target` compiled from `llvm` is expected to call."""
    if not _HALF.search(llvm):
        return set()
    machine = target.triple.split("-", 1)[0]
    needed: set[str] = set()
    if machine == "riscv64" and not target.has("zfhmin") and not target.has("zfh"):
        needed |= {"__extendhfsf2", "__truncsfhf2"}
    if _DOUBLE.search(llvm) and machine != "aarch64":
        needed.add("__truncdfhf2")
    return needed


def with_conversions(llvm: str, needed: Collection[str]) -> str:
    """The LLVM IR `llvm` with definitions of the functions `needed` of `CONVERSIONS`."""
    if not needed:
        return llvm
    # Calls appear only during instruction selection; until then this list alone refers to the definitions.
    names = ", ".join(f"ptr @{name}" for name in sorted(needed))
    kept = f'@llvm.compiler.used = appending global [{len(needed)} x ptr] [{names}], section "llvm.metadata"'
    return "\n".join([llvm, *(CONVERSIONS[name] for name in sorted(needed)), kept, ""])
