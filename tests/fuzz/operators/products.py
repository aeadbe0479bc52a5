"""Products of matrices, of any number of axes, and what is written with them."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import FLOATS, LARGEST, ROUNDING
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import Array, Invalid, Tracked, Undefined, biased, contract, exact, magnitude, multiply

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer

_KINDS = (*FLOATS, "i32", "i64", "u32", "u64")


def matrix_product(a: Array, b: Array) -> Array:
    """As numpy's, with NaN and infinities as sums in order have them."""
    if a.dtype.kind == "f" and not (np.isfinite(a).all() and np.isfinite(b).all()) and a.ndim > 1 and b.ndim > 1:
        return (a[..., :, :, None] * b[..., None, :, :]).sum(axis=-2)
    return np.matmul(a, b)


@meaning("MatMul")
def _matmul(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = given(operands[0]), given(operands[1])
    if not a.shape or not b.shape:
        raise Invalid("MatMul of a scalar")
    return [contract(a, b, matrix_product, a.shape[-1])]


@drawn("product", "MatMul")
def _draw_matmul(d: Drawer) -> None:
    a = d.pick(_KINDS, (1, 4))
    shape = d.shape(a)
    found = [n for n in d.values() if d.dtype(n) == d.dtype(a) and d.shape(n) and _agree(shape, d.shape(n))]
    if found and d.rng.random() < 0.4:
        d.node("MatMul", [a, d.rng.choice(found)])
        return
    if d.rng.random() < 0.12 or len(shape) < 1:
        d.node("MatMul", [a, d.fresh(d.dtype(a), shape[-1:])])
        return
    batch = list(shape[:-2]) if d.rng.random() < 0.5 else []
    batch = [1 if d.rng.random() < 0.3 else e for e in batch]
    columns = d.extent()
    if len(shape) > 1 and d.rng.random() < 0.3:
        d.node("MatMul", [d.fresh(d.dtype(a), [*batch, columns, shape[-2]]), a])
        return
    d.node("MatMul", [a, d.fresh(d.dtype(a), [*batch, shape[-1], columns], constant=0.4)])


def _agree(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        return False
    try:
        np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        return False
    return True


@meaning("Gemm")
def _gemm(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = given(operands[0]), given(operands[1])
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Invalid("Gemm of other than matrices")
    a = a.moved(np.transpose) if attributes.get("transA", 0) else a
    b = b.moved(np.transpose) if attributes.get("transB", 0) else b
    found = contract(a, b, matrix_product, a.shape[-1])
    alpha, beta = (float(np.float32(attributes.get(name, 1.0))) for name in ("alpha", "beta"))
    if alpha != 1:
        found = multiply(found, exact(np.array(alpha), found.dtype))
        # Factors may be multiplied by alpha first: then each is rounded, and what they make is not whole any more.
        scaled = abs(alpha) * magnitude(a, b, matrix_product)
        more = (a.shape[-1] + 1) * ROUNDING[found.dtype] * scaled
        error = np.where(np.isfinite(found.value), found.error + more, found.error)
        # Scaled terms that overflow may have different signs, where their sum does not overflow or is finite.
        found = replace(found, error=error, unknown=found.unknown | (scaled > LARGEST[found.dtype] / 2))
    if len(operands) > 2 and operands[2] is not None:
        c = operands[2]
        if np.broadcast_shapes(c.shape, found.shape) != found.shape:
            raise Invalid("C is larger")
        c = multiply(c, exact(np.array(beta), c.dtype)) if beta != 1 else c
        scaled = abs(alpha) * magnitude(a, b, matrix_product)
        found = biased(found.as_operand(), c.as_operand(), a, b, scaled, a.shape[-1])
    return [found]


@drawn("product", "Gemm")
def _draw_gemm(d: Drawer) -> None:
    a = d.pick(FLOATS, (2, 2))
    transposed = [d.rng.choice((0, 1)), d.rng.choice((0, 1))]
    inner, rows = d.shape(a)[:: 1 if transposed[0] else -1]
    columns = d.extent()
    b = d.fresh(d.dtype(a), (columns, inner) if transposed[1] else (inner, columns), constant=0.4)
    third = d.rng.choice(((), (columns,), (1, columns), (rows, 1), (rows, columns), None))
    c = [] if third is None else [d.fresh(d.dtype(a), third, constant=0.4)]
    scales = {name: float(np.float32(d.rng.choice((1.0, 1.0, 0.5, 0.3, 2.0, -1.0)))) for name in ("alpha", "beta")}
    if d.dtype(a) in ("bf16", "f16"):
        scales = dict.fromkeys(scales, 1.0)  # how the scale is rounded is left open
    d.node("Gemm", [a, b, *c], transA=transposed[0], transB=transposed[1], **scales)


@meaning("Einsum")
def _einsum(attributes: Attributes, operands: Operands) -> list[Tracked]:
    equation: str = attributes["equation"]
    terms = equation.replace(" ", "").split("->")[0].split(",")
    arrays = [given(operand) for operand in operands]
    sizes = {letter: e for term, a in zip(terms, arrays, strict=True) for letter, e in zip(term, a.shape, strict=True)}
    for term, a in zip(terms, arrays, strict=True):
        if any(sizes[letter] != e for letter, e in zip(term, a.shape, strict=True)):
            raise Invalid("extents of one letter differ")
    if math.prod(sizes.values()) > 10_000_000:
        raise Undefined("more products than the reference takes")
    inner = functools.reduce(lambda n, letter: n * max(sizes[letter], 1), set(sizes) - set(equation.split("->")[1]), 1)
    if len(arrays) == 1:
        ones = exact(np.ones((), arrays[0].value.dtype), arrays[0].dtype)
        return [contract(arrays[0], ones, lambda a, b: np.einsum(equation, a) * b, inner)]
    found = contract(arrays[0], arrays[1], lambda a, b: np.einsum(equation, a, b), inner)
    alone = (set(terms[0]) ^ set(terms[1])) - set(equation.split("->")[1])
    if alone and found.is_float:  # what is summed of one operand alone may be summed first, infinities too
        found = replace(found, unknown=found.unknown | ~np.isfinite(found.value))
    return [found]


@drawn("product", "Einsum")
def _draw_einsum(d: Drawer) -> None:
    a = d.pick(_KINDS, (1, 4))
    letters = "abcdefg"
    first = list(letters[: len(d.shape(a))])
    sizes = dict(zip(first, d.shape(a), strict=True))
    terms, inputs = ["".join(first)], [a]
    if d.rng.random() < 0.85:
        shared = [letter for letter in first if d.rng.random() < 0.6]
        own = list(letters[len(first) : len(first) + d.rng.randint(0, 2)])
        second = shared + own
        d.rng.shuffle(second)
        sizes.update({letter: d.rng.choice((1, 2, 3, 5, 7)) for letter in own})
        if not second:
            raise Rejected("nothing in the second term")
        terms.append("".join(second))
        inputs.append(d.fresh(d.dtype(a), [sizes[letter] for letter in second], constant=0.3))
    every = sorted(sizes)
    kept = [letter for letter in every if d.rng.random() < 0.6]
    d.rng.shuffle(kept)
    if np.prod([max(sizes[letter], 1) for letter in every], initial=1) > 60000:
        raise Rejected("too large")
    d.node("Einsum", inputs, equation=f"{','.join(terms)}->{''.join(kept)}")
