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


@dataclass(frozen=True)
class SumBody:
    """Reads the operations of a body with one accumulator, by the numbers of values."""

    stage: Stage

    @property
    def accumulator(self) -> int:
        """The number of the accumulator, after the inputs and before what operations make."""
        return len(self.stage.inputs)

    def operation(self, number: int, *names: str) -> Scalar | None:
        """The operation that makes value `number`, if its name is one of `names`."""
        made = self.stage.body[number - self.accumulator - 1] if number > self.accumulator else None
        return made if made is not None and made.op in names else None

    def through(self, number: int, *casts: str) -> tuple[int, tuple[str, ...]]:
        """The value that value `number` is through casts of `casts`, and these, the first one applied first."""
        found: list[str] = []
        while (cast := self.operation(number, *casts)) is not None:
            found.insert(0, cast.op)
            number = cast.operands[0]
        return number, tuple(found)

    def input(self, number: int, *casts: str) -> int | None:
        """The input that value `number` is, through casts of `casts`."""
        source, _ = self.through(number, *casts)
        return source if source < self.accumulator else None

    def constant(self, number: int) -> int | None:
        """The integer that value `number` is, if it is one."""
        made = self.operation(number, "arith.constant")
        return None if made is None or made.value is None else int(made.value)


def match_product(stage: Stage) -> Product | None:
    """Read the body of `stage` as a sum of products: one output, two inputs, casts of them, a product, a sum."""
    if len(stage.inputs) != 2 or len(stage.outputs) != 1 or len(stage.yields) != 1:
        return None
    r = SumBody(stage)
    total = r.operation(stage.yields[0], "arith.addf", "arith.addi")
    if total is None or r.accumulator not in total.operands:
        return None
    addend = total.operands[1] if total.operands[0] == r.accumulator else total.operands[0]
    number, widened = r.through(addend, *_CASTS)
    product = r.operation(number, "arith.mulf", "arith.muli")
    if product is None:
        return None
    if widened and (product.op == "arith.muli" or set(widened) != {"arith.extf"}):
        return None
    factors = [r.through(operand, *_CASTS) for operand in product.operands]
    if sorted(number for number, _ in factors) != [0, 1]:
        return None
    dtype = _product_dtype(total.dtype)
    if dtype is None:
        return None
    (a, a_casts), (b, b_casts) = factors
    return Product(Operand(a, a_casts), Operand(b, b_casts), dtype)


def _product_dtype(dtype: str) -> str | None:
    if dtype in ("f16", "bf16", "f32"):
        return "f32"
    if dtype in ("i8", "i16", "i32", "ui8", "ui16", "ui32"):
        return "i32"
    return {"f64": "f64", "i64": "i64", "ui64": "i64", "index": "i64"}.get(dtype)
