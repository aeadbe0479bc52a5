"""Quantised tensors, stored bytes that stand for `(byte - zero) * scale`: how programs write them, and Motet does.

    extui %x : i8 to i32; subi 128;              Quantised(stored=%x, unsigned, zero=128,
    sitofp; mulf 0.02; mulf %s             →               scales=(0.02, %s along 0))

Zero points and scales are numbers, or tensors that are indexed by some axes of the bytes (one per channel). Slices,
transpositions, reshapes and padding by zero on the way are repeated on the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number, maps_of, reassociation, reassociation_attribute
from motet.compiler.ir.current import constant, create
from motet.compiler.ir.nests import border_of, empty_like, is_elementwise, nest, repeated
from motet.compiler.kernels.roles import known_number

_WIDENING = ("arith.extsi", "arith.extui")
_TO_FLOAT = ("arith.sitofp", "arith.uitofp")
_READ = ("arith.constant", *_WIDENING, *_TO_FLOAT, "arith.subi", "arith.addi", "arith.subf", "arith.mulf")
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
_VIEWS = (*_RESHAPES, "tensor.cast", "tensor.extract_slice")


@dataclass(frozen=True)
class Side:
    """A tensor of scales or zero points: its axis i goes along axis `axes[i]` of the bytes, None for an axis of extent
    1. `casts` widen its elements."""

    value: ir.Value
    axes: tuple[int | None, ...]
    casts: tuple[str, ...] = ()

    def map(self, through: ir.AffineMap) -> ir.AffineMap:
        """The map by which a nest reads this tensor that reads the bytes by `through`."""
        zero = ir.AffineConstantExpr.get(0, through.context)
        places = [zero if axis is None else through.results[axis] for axis in self.axes]
        return ir.AffineMap.get(through.n_dims, 0, places, through.context)


Number = Side | int | float


@dataclass(frozen=True)
class Quantised:
    """`(stored - zero) * product of scales`, element by element. `unsigned` is None until the bytes are widened;
    `is_real` says that the difference has been converted to a float."""

    stored: ir.Value
    unsigned: bool | None = None
    zero: Side | int = 0
    scales: tuple[Side | float, ...] = ()
    is_real: bool = False
    shifted: bool = False

    @property
    def sides(self) -> list[Side]:
        return [each for each in (self.zero, *self.scales) if isinstance(each, Side)]

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest byte."""
        return (0, 255) if self.unsigned else (-128, 127)

    @property
    def greatest(self) -> int:
        """The greatest magnitude of the bytes minus their zero point."""
        zero = self.zero
        return 383 if isinstance(zero, Side) else max(abs(end - zero) for end in self.limits)

    def with_sides(self, stored: ir.Value, change: Callable[[Side], Side]) -> Quantised:
        """This tensor with other bytes, and tensors of zero points and scales changed accordingly."""
        zero = change(self.zero) if isinstance(self.zero, Side) else self.zero
        scales = tuple(change(each) if isinstance(each, Side) else each for each in self.scales)
        return replace(self, stored=stored, zero=zero, scales=scales)

    def with_axes(self, stored: ir.Value, axes: dict[int, int]) -> Quantised:
        """This tensor with other bytes, whose axes are those of these bytes, renumbered."""
        return self.with_sides(stored, lambda side: replace(
            side, axes=tuple(None if axis is None else axes[axis] for axis in side.axes)))

    def padded(self, pad: ir.Operation, byte: int) -> Quantised:
        """This tensor padded as `pad` pads, by `byte`."""
        number = ir.IntegerAttr.get(ir.RankedTensorType(self.stored.type).element_type, (byte + 128) % 256 - 128)
        return replace(self, stored=repeated(pad, pad, self.stored, number))

    def write_difference(self, byte: ir.Value, zero: ir.Value | None = None) -> ir.Value:
        """Writes a byte minus its zero point, in 32 bits. `zero` is the element of the tensor of zero points."""
        word = ir.IntegerType.get_signless(32)
        wide = create("arith.extui" if self.unsigned else "arith.extsi", word, [byte])
        if isinstance(self.zero, Side):
            assert zero is not None
            zero = zero if zero.type == word else create(self.zero.casts[0], word, [zero])
        elif self.zero:
            zero = constant(word, self.zero)
        return wide if zero is None else create("arith.subi", word, [wide, zero])

    def write_real(self, byte: ir.Value, kind: ir.Type) -> ir.Value:
        """Writes the number that a byte stands for; zero point and scales are numbers."""
        value = create("arith.sitofp", kind, [self.write_difference(byte)])
        for scale in self.scales:
            assert isinstance(scale, float)
            value = create("arith.mulf", kind, [value, constant(kind, scale)])
        return value


def holds_bytes(function: ir.Operation) -> bool:
    """Whether a tensor of a function is of bytes, outside nested regions: if none is, no value is dequantised."""
    blocks = list(function.regions[0].blocks)
    kinds = {argument.type for block in blocks for argument in block.arguments}
    kinds.update(each.type for block in blocks for entry in block.operations for each in entry.operation.results)
    return any(isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "i8" for kind in kinds)


Known = dict[ir.Value, Quantised | None]  # what has been read: a tensor may have several readers


def read_quantised(value: ir.Value, known: Known | None = None) -> Quantised | None:
    """`value` as dequantised bytes; None if it is something else. Views that must be repeated on the bytes are created
    before their operation. `known` is what the caller has read before, of values whose operations it does not change.
    """
    known = {} if known is None else known
    waiting = [value]
    while waiting:  # what a value is read from is read before it: chains may be longer than Python's stack is deep
        missing = [] if waiting[-1] in known else [each for each in _sources(waiting[-1]) if each not in known]
        waiting += missing
        if not missing:
            last = waiting.pop()
            known[last] = known[last] if last in known else _read(last, known)
    return known[value]


def _sources(value: ir.Value) -> list[ir.Value]:
    """The values from which `_read` may read `value`."""
    if isinstance(value.owner, ir.Block):
        return []
    operation = value.owner.operation
    if operation.name == "linalg.generic":
        return [] if _arithmetic(operation) is None else list(operation.operands)
    return list(operation.operands)[:1] if operation.name in ("tensor.pad", *_VIEWS) else []


def _read(value: ir.Value, known: Known) -> Quantised | None:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return None
    if str(kind.element_type) == "i8":
        return Quantised(value)
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name == "linalg.generic":
        return _read_generic(operation, known)
    source = read_quantised(operation.operands[0], known) if operation.name in ("tensor.pad", *_VIEWS) else None
    if source is None or source.unsigned is None:
        return None
    return _read_pad(operation, source) if operation.name == "tensor.pad" else _read_view(operation, source)


def _read_view(operation: ir.Operation, source: Quantised) -> Quantised | None:
    moved = _moved_axes(operation)
    if moved is None and source.sides:
        return None
    axes = moved or {}
    if any(axis is not None and axis not in axes for side in source.sides for axis in side.axes):
        return _split(operation, source, axes)
    return source.with_axes(repeated(operation, operation, source.stored), axes)


def _split(operation: ir.Operation, source: Quantised, moved: dict[int, int]) -> Quantised | None:
    """`source`, axes of whose sides are split by `operation`: the channels of a convolution in groups."""
    shape = list(ir.RankedTensorType(operation.results[0].type).shape)
    if operation.name != "tensor.expand_shape" or ir.ShapedType.get_dynamic_size() in shape:
        return None
    groups = reassociation(operation)

    def expanded(side: Side) -> Side:
        kind = ir.RankedTensorType(side.value.type)
        axes, parts, wide = list[int | None](), list[list[int]](), list[int]()
        for extent, axis in zip(kind.shape, side.axes, strict=True):
            own = [axis] if axis is None else [moved[axis]] if axis in moved else groups[axis]
            parts.append(list(range(len(wide), len(wide) + len(own))))
            wide += [extent] if axis is None else [shape[each] for each in own if each is not None]
            axes += own
        with operation.location, ir.InsertionPoint(operation):
            value = create("tensor.expand_shape", ir.RankedTensorType.get(wide, kind.element_type), [side.value], {
                "reassociation": reassociation_attribute(parts), "static_output_shape": ir.DenseI64ArrayAttr.get(wide)})
        return replace(side, value=value, axes=tuple(axes))

    return source.with_sides(repeated(operation, operation, source.stored), expanded)


def _moved_axes(operation: ir.Operation) -> dict[int, int] | None:
    """For each axis of the source that is unchanged by a view, the axis of the result; None if not known."""
    if operation.name == "tensor.cast":
        rank = ir.RankedTensorType(operation.results[0].type).rank
        return {axis: axis for axis in range(rank)}
    if operation.name not in _RESHAPES:
        return None
    source, result = (
        list(ir.RankedTensorType(each.type).shape) for each in (operation.operands[0], operation.results[0])
    )
    collapses = operation.name == "tensor.collapse_shape"
    found: dict[int, int] = {}
    for one, group in enumerate(reassociation(operation)):
        split, whole = (source, result[one]) if collapses else (result, source[one])
        same = [axis for axis in group if split[axis] != 1]
        if len(same) == 1 and split[same[0]] == whole:
            found[same[0] if collapses else one] = one if collapses else same[0]
    return found


def _read_pad(operation: ir.Operation, source: Quantised) -> Quantised | None:
    """Padding by zero, which is padding of the bytes by their zero point."""
    border, zero = border_of(operation), source.zero
    if isinstance(zero, Side) or any(axis is not None for side in source.sides for axis in side.axes):
        return None
    if border is None or known_number(border) != 0 or not source.limits[0] <= zero <= source.limits[1]:
        return None
    return source.padded(operation, zero)


# -- element-wise operations -----------------------------------------------------------------------------


def _arithmetic(operation: ir.Operation) -> list[ir.Operation] | None:
    """The operations in the body of an element-wise nest; None if some cannot be read."""
    if not is_elementwise(operation):
        return None
    *body, last = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    return None if any(each.name not in _READ for each in body) else [*body, last]


def _read_generic(operation: ir.Operation, known: Known) -> Quantised | None:
    body = _arithmetic(operation)
    if body is None:
        return None
    values: dict[ir.Value, Quantised | Number] = {}
    block, (*inputs, _) = operation.regions[0].blocks[0], maps_of(operation)
    for argument, operand, each in zip(block.arguments, operation.operands, inputs, strict=False):
        found = _operand(operation, operand, each, known)
        if found is not None:
            values[argument] = found
    for each in body[:-1]:
        result = _evaluate(each, values)
        if result is None:
            return None
        values[each.results[0]] = result
    found = values.get(body[-1].operands[0])
    return found if isinstance(found, Quantised) else None


def _operand(operation: ir.Operation, operand: ir.Value, each: ir.AffineMap, known: Known) -> Quantised | Number | None:
    """An operand of an element-wise nest: a number, a dequantised tensor of all points, or a side."""
    number = known_number(operand)
    if number is not None or not isinstance(operand.type, ir.RankedTensorType):
        return number
    axes = _axes(each, operand.type.shape)
    if axes is None:
        return None
    if 0 < each.n_dims == len(axes) and all(axis in (None, place) for place, axis in enumerate(axes)):
        found = read_quantised(operand, known)  # read point by point; along axes of extent 1 also as element 0
        if found is not None:
            return found
    if None in axes or len(axes) < each.n_dims:
        return Side(operand, axes)
    permuted = read_quantised(operand, known)
    if permuted is None or permuted.unsigned is None or set(axes) != set(range(each.n_dims)):
        return None
    places = {axis: place for axis, place in enumerate(axes) if place is not None}
    return permuted.with_axes(_transposed(operation, permuted.stored, each), places)


def _transposed(operation: ir.Operation, source: ir.Value, each: ir.AffineMap) -> ir.Value:
    """`source` in the order of the points of `operation`."""
    output = operation.operands[len(operation.operands) - 1]
    empty = empty_like(operation, output, ir.RankedTensorType(source.type).element_type)
    identity = ir.AffineMap.get_identity(each.n_dims, operation.context)
    return nest(operation, [source], empty, [each, identity], lambda block: block.arguments[0])


def _axes(each: ir.AffineMap, shape: list[int]) -> tuple[int | None, ...] | None:
    """The dimension of each result of a map; None for one that is 0. None if a result is something else."""
    axes: list[int | None] = []
    for result, extent in zip(each.results, shape, strict=True):
        if extent == 1:
            axes.append(None)
        elif isinstance(result, ir.AffineDimExpr):
            axes.append(ir.AffineDimExpr(result).position)
        else:
            return None
    return tuple(axes)


def _evaluate(operation: ir.Operation, known: dict[ir.Value, Quantised | Number]) -> Quantised | Number | None:
    name = operation.name
    if name == "arith.constant":
        return constant_number(operation)
    first, *others = [known.get(each, known_number(each)) for each in operation.operands]
    if name in (*_WIDENING, *_TO_FLOAT):
        return _converted(name, first, operation)
    (second,) = others
    if name == "arith.mulf":
        if not isinstance(first, Quantised):
            first, second = second, first
        if not isinstance(first, Quantised) or not first.is_real or second is None or isinstance(second, Quantised):
            return None
        return replace(first, scales=(*first.scales, second))
    if not isinstance(first, Quantised):
        return None
    if name == "arith.subi" and isinstance(second, Side | int):
        return _shifted(first, second)
    if name == "arith.addi" and isinstance(second, int):
        return _shifted(first, -second)
    if name == "arith.subf" and isinstance(second, float) and second.is_integer():
        return _shifted(first, int(second))
    return None


def _converted(name: str, first: Quantised | Number | None, operation: ir.Operation) -> Quantised | Number | None:
    if isinstance(first, int | float) and name in _TO_FLOAT:
        return float(first)
    if isinstance(first, int) and name in _WIDENING:
        bits = operation.operands[0].type.width
        return first if first >= 0 or name == "arith.extsi" else first + (1 << bits)
    if isinstance(first, Side):
        return replace(first, casts=(*first.casts, name)) if name in _WIDENING else None
    if not isinstance(first, Quantised) or first.is_real:
        return None
    reads_unsigned = name in ("arith.extui", "arith.uitofp")
    if first.unsigned is not None and reads_unsigned and (first.shifted or not first.unsigned):
        return None  # the difference may be negative
    unsigned = reads_unsigned if first.unsigned is None else first.unsigned
    return replace(first, unsigned=unsigned, is_real=name in _TO_FLOAT)


def _shifted(first: Quantised, zero: Side | int) -> Quantised | None:
    if first.unsigned is None or first.shifted or first.scales or (isinstance(zero, int) and abs(zero) > 255):
        return None
    return replace(first, zero=zero, shifted=True)
