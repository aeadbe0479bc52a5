"""Reads kernels as products of bf16 numbers that are summed in f32."""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.codegen.cpu.products.bfloat_image import match_windows
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, ways_of
from motet.compiler.codegen.cpu.products.product import LineProduct
from motet.compiler.kernels import contraction as contraction_reading
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.strides import ONE, Extent, product_of
from motet.compiler.targets.cpu import CpuTarget

_FEW_ROWS = 4  # that do not repay packing a matrix in every call


def match(kernel: Kernel, target: CpuTarget) -> LineProduct | None:
    """Read `kernel` as a product of bf16 numbers with an element-wise epilogue, also a convolution; None if it is none,
    or if `target` has no instructions for it."""
    if not ways_of(target, BFLOATS) or not kernel.stages:
        return None
    inputs = kernel.stages[0].inputs
    if len(inputs) != 2 or any(kernel.values[access.value].dtype != "bf16" for access in inputs):
        return None
    c = contraction_reading.match(kernel)
    if c is not None and c.product.dtype != "f32":
        return None
    stored = None if c is None else _as_stored(c)
    if stored is not None:
        return LineProduct(stored, BFLOATS)
    convolution = match_windows(kernel) if c is None or len(c.depth) > 1 else None
    if convolution is None or convolution[0].product.dtype != "f32":
        return None
    return LineProduct(convolution[0], BFLOATS, image=convolution[1])


def _as_stored(c: Contraction) -> Contraction | None:
    """`c` as a product of operands that are packed or read in place, with the innermost loop of K along A's contiguous
    dimension; None if it has several loops of K that do not allow it, or few rows for packing B."""
    if c.depth[0][1] < 0 or 0 in _extents(c):
        return None
    constant = c.kernel.values[c.b.value].role == "constant"
    few = c.m is None or (c.m[0].known is not None and c.m[0].known <= _FEW_ROWS)
    if few and not constant:
        return None
    if len(c.depth) == 1:
        return c
    inner = next((loop for loop in c.depth if c.a.strides[loop[1]] == ONE), None)
    if inner is None or not constant or inner[0].known is None or inner[0].known % BFLOATS.depth:
        return None
    return replace(c, depth=(*(loop for loop in c.depth if loop != inner), inner))


def _extents(c: Contraction) -> list[int | None]:
    m: Extent = c.m[0] if c.m else ONE
    return [m.known, c.n[0].known, product_of(c.depth).known, product_of(c.outer).known]
