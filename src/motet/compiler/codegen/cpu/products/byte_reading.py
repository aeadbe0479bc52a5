"""Reads kernels as products of 8-bit integers: contractions of operands minus their zero points."""

from __future__ import annotations

from dataclasses import replace

from motet.compiler.codegen.cpu.products.byte_image import match_image
from motet.compiler.codegen.cpu.products.instructions import BYTES
from motet.compiler.codegen.cpu.products.product import Factor, LineProduct
from motet.compiler.kernels import contraction as contraction_reading
from motet.compiler.kernels.kernel import Kernel, Scalar, Stage
from motet.compiler.kernels.product import SumBody
from motet.compiler.kernels.strides import ZERO, Extent, StridedAccess, place_of
from motet.compiler.kernels.windows import Windows, read_windows
from motet.compiler.targets.cpu import CpuTarget

_BYTES = ("i8", "ui8")
_CASTS = ("arith.extsi", "arith.extui")


def match(kernel: Kernel, _: CpuTarget) -> LineProduct | None:
    """Read `kernel` as an 8-bit product with an element-wise epilogue; None if it is not one."""
    stage = kernel.stages[0] if kernel.stages else None
    factors = None if stage is None else read_factors(kernel, stage)
    if stage is None or factors is None:
        return None
    plain = plain_stage(stage, factors)
    simple = replace(kernel, stages=(plain, *kernel.stages[1:]))
    if (read := read_windows(plain)) is not None:
        return _match_windows(simple, read, factors, stage)
    c = contraction_reading.match(simple)
    if c is None or c.output != "i32" or len(c.depth) != 1 or c.depth[0][1] < 0:
        return None
    a, b = factors if c.product.lhs.input == 0 else reversed(factors)
    found = LineProduct(c, BYTES, a, b)
    return found if _zeros_fit(found, stage) else None


def read_factors(kernel: Kernel, stage: Stage) -> tuple[Factor, Factor] | None:
    """The bytes whose products `stage` sums in 32 bits, with their zero points; None if it does something else."""
    if len(stage.outputs) != 1 or len(stage.inputs) < 2 or not stage.reductions:
        return None
    if sum(kernel.values[access.value].dtype in _BYTES for access in stage.inputs) < 2:
        return None
    return _match_body(kernel, stage)


def plain_stage(stage: Stage, factors: tuple[Factor, Factor]) -> Stage:
    """`stage` without zero points."""
    bare = tuple(
        Scalar("arith.extui" if factor.unsigned else "arith.extsi", (i,), "i32") for i, factor in enumerate(factors)
    )
    body = (*bare, Scalar("arith.muli", (3, 4), "i32"), Scalar("arith.addi", (2, 5), "i32"))
    return replace(stage, inputs=tuple(stage.inputs[factor.input] for factor in factors), body=body, yields=(6,))


def _match_windows(kernel: Kernel, read: Windows, factors: tuple[Factor, Factor], stage: Stage) -> LineProduct | None:
    """A convolution as a product of lines gathered from its windows and filters."""
    found = match_image(kernel, read)
    if found is None or found[0].output != "i32":
        return None
    c, image = found
    own = read.dims.product.lhs.input
    a, b = (factors[own], factors[1 - own]) if image.is_a else (factors[1 - own], factors[own])
    product = LineProduct(c, BYTES, a, b, image)
    return product if _zeros_fit(product, stage) else None


def _match_body(kernel: Kernel, stage: Stage) -> tuple[Factor, Factor] | None:
    """The operands of a body that adds their product to an accumulator, computed in 32 bits."""
    r = SumBody(stage)
    total = r.operation(stage.yields[0], "arith.addi")
    if total is None or total.dtype != "i32" or total.operands.count(r.accumulator) != 1:
        return None
    product = r.operation(total.operands[0] if total.operands[1] == r.accumulator else total.operands[1], "arith.muli")
    if product is None:
        return None
    factors = [_match_factor(kernel, r, number) for number in product.operands]
    a, b = factors
    return None if a is None or b is None or a.input == b.input else (a, b)


def _match_factor(kernel: Kernel, r: SumBody, number: int) -> Factor | None:
    if (minus := r.operation(number, "arith.subi")) is not None:
        bare = _match_factor(kernel, r, minus.operands[0])
        zero = _match_zero(kernel, r, minus.operands[1])
        if minus.dtype != "i32" or bare is None or bare.zero or zero is None:
            return None
        return replace(bare, zero=zero[0], zero_casts=zero[1])
    cast = r.operation(number, *_CASTS)
    source, casts = r.through(number, *_CASTS)
    if cast is None or cast.dtype != "i32" or source >= r.accumulator or len(set(casts)) != 1:
        return None
    access = r.stage.inputs[source]
    if kernel.values[access.value].dtype not in _BYTES:
        return None
    return Factor(source, casts[0] == "arith.extui")


def _match_zero(
    kernel: Kernel, r: SumBody, number: int
) -> tuple[StridedAccess | int, tuple[str, ...]] | None:
    """A zero point: a constant, or an input that does not change along K."""
    if (constant := r.constant(number)) is not None:
        return constant, ()
    source, casts = r.through(number, *_CASTS)
    if source >= r.accumulator or len(set(casts)) > 1:
        return None
    access = r.stage.inputs[source]
    value = kernel.values[access.value]
    place = place_of(kernel, access, len(r.stage.sizes))
    if access.padding is not None or value.role not in ("argument", "constant") or place is None:
        return None
    if value.dtype not in ((*_BYTES, "i16", "ui16") if casts else ("i32", "ui32")):
        return None
    return None if any(place.strides[d] != ZERO for d in r.stage.reductions) else (place, casts)


def _zeros_fit(found: LineProduct, stage: Stage) -> bool:
    """Whether zero points of A vary at most by row, and those of B at most by column. Loops may be merged from several
    dimensions, of which the access of a zero point has only the last stride."""
    c = found.c
    for factor, loop in ((found.a, c.m), (found.b, c.n)):
        if not isinstance(factor.zero, StridedAccess):
            continue
        for dim, stride in enumerate(factor.zero.strides):
            if stride == ZERO or stage.sizes[dim] == 1:
                continue
            if loop is None or dim != loop[1] or loop[0] != Extent.of(stage.sizes[dim]):
                return False
    return True
