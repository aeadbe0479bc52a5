"""Reads stages as sums of products, the core of contractions and convolutions.

    v2[i, j] += extf(v0[i, k]) * extf(v1[k, j])    →    Product(lhs=input 0 through extf, rhs=input 1 through extf, f32)
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.kernels.kernel import ITEM_BITS, Scalar, Stage

_CASTS = ("arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp")
# Element types that bodies compute with directly; others are converted first, or are complex.
PLAIN_DTYPES = frozenset(dtype for dtype in ITEM_BITS if not dtype.startswith(("f8", "complex")))


@dataclass(frozen=True)
class Operand:
    """An operand of the product: input `input` of the stage, through `casts` (operation names)."""

    input: int
    casts: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """`accumulator += lhs * rhs`, computed in `dtype`; f32 even if the program uses 16-bit floats."""

    lhs: Operand
    rhs: Operand
    dtype: str

    @property
    def is_float(self) -> bool:
        return self.dtype in ("f32", "f64")


def match_product(stage: Stage) -> Product | None:
    """Read the body of `stage` as a sum of products: one output, two inputs, casts of them, a product, a sum."""
    if len(stage.inputs) != 2 or len(stage.outputs) != 1 or len(stage.yields) != 1:
        return None
    first = len(stage.inputs) + 1
    defined = {first + k: op for k, op in enumerate(stage.body)}
    total = defined.get(stage.yields[0])
    if total is None or total.op not in ("arith.addf", "arith.addi") or first - 1 not in total.operands:
        return None
    addend = total.operands[1] if total.operands[0] == first - 1 else total.operands[0]
    number, widened = _through_casts(addend, defined)
    product = defined.get(number)
    if product is None or product.op not in ("arith.mulf", "arith.muli"):
        return None
    if widened and (product.op == "arith.muli" or set(widened) != {"arith.extf"}):
        return None
    factors = [_through_casts(operand, defined) for operand in product.operands]
    if sorted(number for number, _ in factors) != [0, 1]:
        return None
    dtype = _product_dtype(total.dtype)
    if dtype is None:
        return None
    (a, a_casts), (b, b_casts) = factors
    return Product(Operand(a, a_casts), Operand(b, b_casts), dtype)


def _through_casts(number: int, defined: dict[int, Scalar]) -> tuple[int, tuple[str, ...]]:
    casts: list[str] = []
    while (op := defined.get(number)) is not None and op.op in _CASTS:
        casts.append(op.op)
        number = op.operands[0]
    return number, tuple(reversed(casts))


def _product_dtype(dtype: str) -> str | None:
    if dtype in ("f16", "bf16", "f32"):
        return "f32"
    if dtype in ("i8", "i16", "i32", "ui8", "ui16", "ui32"):
        return "i32"
    return {"f64": "f64", "i64": "i64", "ui64": "i64", "index": "i64"}.get(dtype)
