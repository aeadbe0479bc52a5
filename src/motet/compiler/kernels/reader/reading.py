"""The state of reading a kernel's function (MLIR): its values and stages, and the sources of SSA values."""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.affine import Affine, identity_map
from motet.compiler.ir.intervals import Intervals
from motet.compiler.kernels.kernel import ITEM_BITS, Access, Scalar, Size, Stage, Value, item_bytes, row_major


class Unreadable(Exception):
    """The function has something that stages cannot express; the text names it."""


@dataclass(frozen=True)
class View:
    """Elements of value `base` under other indices: element `d` is `base[map(d)]`, or `padding` out of bounds. `limits`
    are the extents of the view itself."""

    base: int
    map: tuple[Affine, ...]
    shape: tuple[Size, ...]
    padding: float | int | None = None


Number = float | int
Source = View | Number | None  # what an SSA value stands for; None: undefined contents


class Reading:
    """A kernel while it is read. With `gathers`, bodies may contain `tensor.extract` (see `Scalar`)."""

    gathers = False
    checks_indices = False  # of gathers

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.sources: dict[ir.Value, Source] = {}
        self.symbols: dict[str, Size] = {}  # union-find over symbol names
        self.extents: dict[ir.Value, Size] = {}  # index values known to be an extent
        self.shapes: dict[ir.Value, tuple[Size | None, ...]] = {}  # of tensors without contents
        self.checks: list[str] = []  # the texts for indices out of bounds, in kernels with gathers
        self.intervals = Intervals()

    def source_of(self, value: ir.Value) -> Source:
        if value not in self.sources:
            raise Unreadable(f"value of type {value.type} from outside")
        return self.sources[value]

    def new_value(self, shape: tuple[Size, ...], dtype: str) -> int:
        """Add a temporary; returns its number."""
        self.values.append(Value(shape, dtype, "temporary", row_major(len(shape))))
        return len(self.values) - 1

    def materialised(self, view: View, dtype: str) -> View:
        """`view` copied to a separate value."""
        target = self.new_value(view.shape, dtype)
        rank = len(view.shape)
        self.stages.append(
            Stage(
                sizes=view.shape, iterators=("parallel",) * rank, inputs=(Access(view.base, view.map, view.padding),),
                outputs=(Access(target, identity_map(rank)),), inits=(None,), body=(), yields=(0,), source="copy",
            )
        )
        return View(target, identity_map(rank), view.shape)

    def spread(self, number: Number, shape: tuple[Size, ...], dtype: str) -> View:
        """A separate value filled with `number`."""
        target, rank = self.new_value(shape, dtype), len(shape)
        self.stages.append(
            Stage(
                sizes=shape, iterators=("parallel",) * rank, inputs=(), outputs=(Access(target, identity_map(rank)),),
                inits=(None,), body=(Scalar("arith.constant", (), dtype, number),), yields=(1,), source="fill",
            )
        )
        return View(target, identity_map(rank), shape)

    def unify(self, known: Size | None, extent: Size) -> Size:
        """The unified extent of two extents of one loop; `known` is None for the first."""
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
        """The representative of all extents unified with `size`."""
        while isinstance(size, str) and self.symbols.get(size, size) != size:
            size = self.symbols[size]
        return size


def element_bytes(kind: ir.Type) -> int:
    """The bytes of an element of a tensor type, which may be complex."""
    element = ir.RankedTensorType(kind).element_type
    if isinstance(element, ir.ComplexType):
        return 2 * item_bytes(dtype_of(ir.ComplexType(element).element_type))
    return item_bytes(dtype_of(element))


def dtype_of(kind: ir.Type) -> str:
    """The element type of a tensor type, or a scalar type, in MLIR's syntax."""
    if isinstance(kind, ir.RankedTensorType):
        kind = ir.RankedTensorType(kind).element_type
    name = str(kind)
    if name not in ITEM_BITS:
        raise Unreadable(f"element type {name}")
    return name


def affine_of(expression: ir.AffineExpr) -> Affine:
    """A result of a linear map as `Affine`. Raises `Unreadable` for `floordiv`, `mod` and symbols."""
    if isinstance(expression, ir.AffineConstantExpr):
        return Affine((), ir.AffineConstantExpr(expression).value)
    if isinstance(expression, ir.AffineDimExpr):
        return Affine.dim(ir.AffineDimExpr(expression).position)
    if isinstance(expression, ir.AffineAddExpr):
        pair = ir.AffineBinaryExpr(expression)
        return affine_of(pair.lhs) + affine_of(pair.rhs)
    if isinstance(expression, ir.AffineMulExpr):
        pair = ir.AffineBinaryExpr(expression)
        left, right = affine_of(pair.lhs), affine_of(pair.rhs)
        if left.is_constant:
            left, right = right, left
        if right.is_constant:
            return left * right.constant
    raise Unreadable(f"indexing expression {expression}")
