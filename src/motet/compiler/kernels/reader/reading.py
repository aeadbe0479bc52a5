"""What is known of a kernel while its function (MLIR) is read: its values and stages, and what SSA values stand for."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.intervals import Intervals
from motet.compiler.kernels.kernel import (
    ITEM_BITS,
    Access,
    Affine,
    Size,
    Stage,
    Value,
    identity_map,
    item_bytes,
    row_major,
)


class Unreadable(Exception):
    """The function has something that stages cannot say; the text names it."""


@dataclass(frozen=True)
class View:
    """Elements of value `base` under another numbering: element `d` is `base[map(d)]`, or `padding` outside.
    `limits` are the extents that the view itself has."""

    base: int
    map: tuple[Affine, ...]
    shape: tuple[Size, ...]
    padding: float | int | None = None


Number = float | int
Source = View | Number | None  # what an SSA value stands for; None: contents undefined


class Reading:
    """A kernel as far as it is read. With `gathers`, bodies may have `tensor.extract` (see `Scalar`)."""

    gathers = False
    checks_indices = False  # of gathers

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.sources: dict[ir.Value, Source] = {}
        self.symbols: dict[str, Size] = {}  # union-find over symbol names
        self.extents: dict[ir.Value, Size] = {}  # index values that are known to be an extent
        self.shapes: dict[ir.Value, tuple[Size | None, ...]] = {}  # of tensors without contents
        self.checks: list[str] = []  # what to say of indices that are outside, in kernels with gathers
        self.intervals = Intervals()

    def source_of(self, value: ir.Value) -> Source:
        if value not in self.sources:
            raise Unreadable(f"value of type {value.type} from outside")
        return self.sources[value]

    def new_value(self, shape: tuple[Size, ...], dtype: str) -> int:
        """The number of a new temporary."""
        self.values.append(Value(shape, dtype, "temporary", row_major(len(shape))))
        return len(self.values) - 1

    def materialised(self, view: View, dtype: str) -> View:
        """`view` as a value of its own."""
        target = self.new_value(view.shape, dtype)
        rank = len(view.shape)
        self.stages.append(
            Stage(
                sizes=view.shape, iterators=("parallel",) * rank, inputs=(Access(view.base, view.map, view.padding),),
                outputs=(Access(target, identity_map(rank)),), inits=(None,), body=(), yields=(0,), source="copy",
            )
        )
        return View(target, identity_map(rank), view.shape)

    def unify(self, known: Size | None, extent: Size) -> Size:
        """What two extents of one loop are; `known` is None for the first."""
        if known is None or known == extent:
            return extent
        known, extent = self.find(known), self.find(extent)
        if known == extent:
            return known
        if isinstance(extent, str):
            self.symbols[extent] = known
            return known
        if isinstance(known, str):
            self.symbols[known] = extent
            return extent
        raise Unreadable(f"extents {known} and {extent} in one loop")

    def find(self, size: Size) -> Size:
        """What stands for all extents that were found to be equal to `size`."""
        while isinstance(size, str) and self.symbols.get(size, size) != size:
            size = self.symbols[size]
        return size


def element_bytes(kind: ir.Type) -> int:
    """The bytes of an element of a tensor type, which may be a complex number."""
    element = ir.RankedTensorType(kind).element_type
    if isinstance(element, ir.ComplexType):
        return 2 * item_bytes(dtype_of(ir.ComplexType(element).element_type))
    return item_bytes(dtype_of(element))


def dtype_of(kind: ir.Type) -> str:
    """The element type of a tensor type, or of a scalar, in MLIR's spelling."""
    if isinstance(kind, ir.RankedTensorType):
        kind = ir.RankedTensorType(kind).element_type
    name = str(kind)
    if name not in ITEM_BITS:
        raise Unreadable(f"element type {name}")
    return name


def affine_of(expression: ir.AffineExpr, rank: int) -> Affine:
    """A linear map's result; `floordiv`, `mod` and symbols are `Unreadable`."""
    if isinstance(expression, ir.AffineConstantExpr):
        return Affine((0,) * rank, ir.AffineConstantExpr(expression).value)
    if isinstance(expression, ir.AffineDimExpr):
        position = ir.AffineDimExpr(expression).position
        return Affine(tuple(int(i == position) for i in range(rank)))
    if isinstance(expression, ir.AffineAddExpr):
        pair = ir.AffineBinaryExpr(expression)
        return affine_of(pair.lhs, rank) + affine_of(pair.rhs, rank)
    if isinstance(expression, ir.AffineMulExpr):
        pair = ir.AffineBinaryExpr(expression)
        left, right = affine_of(pair.lhs, rank), affine_of(pair.rhs, rank)
        if left.is_constant:
            left, right = right, left
        if right.is_constant:
            return left.scaled(right.constant)
    raise Unreadable(f"indexing expression {expression}")
