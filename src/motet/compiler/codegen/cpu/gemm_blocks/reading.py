"""Reads kernels as products by weights of a few bits, in the form that keep-block-weights writes:

    sum of x[m, b, w, t] * (((words[b, w, n] << (32 - bits - bits * t) >> (32 - bits)) - zeros[b, n]) * scales[b, n])
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels import contraction as contraction_reading
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage, Value, row_major
from motet.compiler.kernels.product import SumBody
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget

_BITS = (4, 8)


@dataclass(frozen=True)
class BlockProduct:
    """A kernel read as a product by weights of `bits` bits. `c` is the product by a matrix of f32, `c.b`, that is
    stored as the value `words`, of `bits` bits, with sides for each `block` rows: the values `scales`, and `zeros` and
    `shifts`, None if there are none. The kernel of `c` is the one that was read."""

    c: Contraction
    bits: int
    block: int
    words: int
    scales: int
    zeros: int | None
    shifts: int | None
    whole: Kernel  # with the weights as a constant of f32

    @property
    def per_word(self) -> int:
        """The numbers in one word."""
        return 32 // self.bits

    @property
    def depth(self) -> int:
        """The rows of the matrix, with padding."""
        blocks, words, _ = self.c.kernel.values[self.words].shape
        assert isinstance(blocks, int) and isinstance(words, int)
        return blocks * words * self.per_word

    @property
    def columns(self) -> int:
        size = self.c.kernel.values[self.words].shape[2]
        assert isinstance(size, int)
        return size

    @property
    def sides(self) -> list[int]:
        return [each for each in (self.scales, self.zeros, self.shifts) if each is not None]


def match(kernel: Kernel, target: CpuTarget) -> BlockProduct | None:
    """Read `kernel` as a product by weights of a few bits with an element-wise epilogue; None if it is not one."""
    stage = kernel.stages[0] if kernel.stages else None
    if stage is None or len(stage.outputs) != 1 or len(stage.inputs) < 3:
        return None
    body = _match_body(stage)
    if body is None:
        return None
    values, inputs = kernel.values, stage.inputs
    words = inputs[body.words]
    sides = [inputs[each] for each in (body.scales, body.zeros, body.shifts) if each is not None]
    constant = all(values[each.value].role == "constant" for each in (words, *sides))
    if not constant or not _fits(kernel, stage, words, sides, body):
        return None
    whole = _with_floats(kernel, stage, body, words)
    c = contraction_reading.match(whole)
    if c is None:
        return None
    if c.a.value == words.value:
        if c.m is None:
            return None
        product = replace(c.product, lhs=c.product.rhs, rhs=c.product.lhs)
        c = replace(c, a=c.b, b=c.a, m=c.n, n=c.m, product=product)
    _, each, columns = values[words.value].shape
    if len(c.depth) != 1 or c.depth[0][1] < 0 or c.b.strides[c.column] != ONE or c.n[0].known != columns:
        return None
    assert isinstance(each, int)
    zeros, shifts = (None if side is None else inputs[side].value for side in (body.zeros, body.shifts))
    return BlockProduct(
        replace(c, kernel=kernel), body.bits, each * 32 // body.bits, words.value, inputs[body.scales].value, zeros,
        shifts, whole,
    )


# -- the body ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BlockBody:
    """The inputs of a body, by number; `part` is the dimension of the numbers in a word."""

    bits: int
    part: int
    left: int
    left_casts: tuple[str, ...]
    words: int
    scales: int
    zeros: int | None
    shifts: int | None


def _match_body(stage: Stage) -> _BlockBody | None:
    r = SumBody(stage)
    total = r.operation(stage.yields[0], "arith.addf")
    product = None if total is None or total.operands[0] != r.accumulator else r.operation(
        total.operands[1], "arith.mulf")
    if product is None or product.dtype != "f32":
        return None
    left, weight = r.input(product.operands[0], "arith.extf"), product.operands[1]
    shifted = r.operation(weight, "arith.addf")
    shifts = None if shifted is None else r.input(shifted.operands[1])
    scaled = r.operation(weight if shifted is None else shifted.operands[0], "arith.mulf")
    scales = None if scaled is None else r.input(scaled.operands[1], "arith.extf")
    real = None if scaled is None else r.operation(scaled.operands[0], "arith.sitofp")
    if real is None or left is None or scales is None or (shifted is not None and shifts is None):
        return None
    whole = r.operation(real.operands[0], "arith.subi")
    zeros = None if whole is None else r.input(whole.operands[1], "arith.extsi")
    field = _match_field(r, real.operands[0] if whole is None else whole.operands[0])
    if field is None or (whole is not None and zeros is None):
        return None
    casts = ("arith.extf",) if product.operands[0] > r.accumulator else ()
    return _BlockBody(field[0], field[1], left, casts, field[2], scales, zeros, shifts)


def _match_field(r: SumBody, number: int) -> tuple[int, int, int] | None:
    """The bits, the dimension of the numbers in a word, and the input of the words."""
    right = r.operation(number, "arith.shrsi")
    left = None if right is None else r.operation(right.operands[0], "arith.shli")
    low = None if left is None else r.operation(left.operands[1], "arith.subi")
    if right is None or left is None or low is None:
        return None
    words, unused = r.input(left.operands[0]), r.constant(right.operands[1])
    scaled = r.operation(low.operands[1], "arith.muli")
    cast = None if scaled is None else r.operation(scaled.operands[0], "arith.index_cast")
    index = None if cast is None else r.operation(cast.operands[0], "linalg.index")
    if unused is None or words is None or scaled is None or index is None or index.value is None:
        return None
    bits = 32 - unused
    if bits not in _BITS or r.constant(scaled.operands[1]) != bits or r.constant(low.operands[0]) != unused:
        return None
    return bits, int(index.value), words


def _fits(kernel: Kernel, stage: Stage, words: Access, sides: list[Access], body: _BlockBody) -> bool:
    """Whether words and sides are read by block, word and column, as they are stored."""
    single = [entry.single for entry in words.map]
    if None in single or len(single) != 3 or stage.sizes[body.part] != 32 // body.bits:
        return False
    block, _, column = single
    if kernel.values[words.value].dtype not in ("i32", "ui32") or body.part in single:
        return False
    if any([entry.single for entry in side.map] != [block, column] for side in sides):
        return False
    stored = [kernel.values[each.value] for each in (words, *sides)]
    return all(value.order == row_major(value.rank) for value in stored)


def _with_floats(kernel: Kernel, stage: Stage, body: _BlockBody, words: Access) -> Kernel:
    """`kernel` with the matrix of weights as a constant of f32, in the place of the words."""
    blocks, each, columns = kernel.values[words.value].shape
    floats = Value((blocks, each, 32 // body.bits, columns), "f32", "constant", row_major(4))
    values = tuple(floats if i == words.value else value for i, value in enumerate(kernel.values))
    access = Access(words.value, (*words.map[:2], Affine.dim(body.part), words.map[2]))
    scalars = [Scalar(cast, (0,), "f32") for cast in body.left_casts]
    count = len(scalars)
    scalars += [Scalar("arith.mulf", (3 if count else 0, 1), "f32"), Scalar("arith.addf", (2, 3 + count), "f32")]
    plain = replace(
        stage, inputs=(stage.inputs[body.left], access), body=tuple(scalars), yields=(4 + count,))
    return replace(kernel, values=values, stages=(plain, *kernel.stages[1:]))
