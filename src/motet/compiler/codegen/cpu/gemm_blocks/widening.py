"""Widens words of 4-bit or 8-bit numbers to vectors of f32, one number of each word at a time.

With AVX-512, four bits are the index of a table of 16 floats in a register, and the bits above are ignored: a shift and
a permutation for each vector. Other levels shift the number to the top of its lane, shift it back with its sign, and
convert it.
"""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, I32, Splat
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame

_TABLE_LANES = 16


class Widening:
    """The numbers of words of `bits` bits, in vectors of `lanes` lanes. `looks_up` says that the CPU has AVX-512."""

    def __init__(self, bits: int, lanes: int, looks_up: bool) -> None:
        self.bits = bits
        self.lanes = lanes
        self.looks_up = looks_up and bits == 4 and lanes == _TABLE_LANES

    def number(self, f: TileFrame, words: ir.Value, part: int) -> ir.Value:
        """The signed number `part` of each word, as f32."""
        floats = ir.VectorType(F32, self.lanes)
        if self.looks_up:
            index = f.lshr(words, self._constant(self.bits * part)) if part else words
            table = ir.Constant(floats, [float(n if n < 8 else n - 16) for n in range(_TABLE_LANES)])
            return f.intrinsic("llvm.x86.avx512.permvar.sf.512", floats, [table, index])
        above = 32 - self.bits * (part + 1)
        top = f.shl(words, self._constant(above)) if above else words
        return f.sitofp(f.ashr(top, self._constant(32 - self.bits)), floats)

    def _constant(self, number: int) -> ir.Value:
        return Splat(ir.VectorType(I32, self.lanes), number)
