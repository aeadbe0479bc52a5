"""Reads tensors of floats or integers that are computed from one tensor of bytes: `(bytes - zero) * scale`.

    extui %x : i8 to i32; subi 128;              Dequantised(bytes=%x, unsigned, zero=128,
    sitofp; mulf 0.02; mulf %s             →                 scales=(0.02, %s along 0))

Zero points and scales are numbers, or tensors that are indexed by some axes of the bytes (one per channel). Slices,
transpositions, reshapes and padding by zero on the way are repeated on the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number, maps_of, reassociation, reassociation_attribute
from motet.compiler.ir.create import create
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


Number = Side | int | float


@dataclass(frozen=True)
class Dequantised:
    """`(bytes - zero) * product of scales`, element by element. `unsigned` is None until the bytes are widened;
    `is_real` says that the difference has been converted to a float."""

    bytes: ir.Value
    unsigned: bool | None = None
    zero: Side | int = 0
    scales: tuple[Side | float, ...] = ()
    is_real: bool = False
    shifted: bool = False

    @property
    def sides(self) -> list[Side]:
        return [each for each in (self.zero, *self.scales) if isinstance(each, Side)]

    @property
    def greatest(self) -> int:
        """The greatest magnitude of the bytes minus their zero point."""
        low, high = (0, 255) if self.unsigned else (-128, 127)
        zero = self.zero
        return 383 if isinstance(zero, Side) else max(abs(low - zero), abs(high - zero))


def holds_bytes(function: ir.Operation) -> bool:
    """Whether a tensor of a function is of bytes, outside nested regions: if none is, no value is dequantised."""
    blocks = list(function.regions[0].blocks)
    kinds = {argument.type for block in blocks for argument in block.arguments}
    kinds.update(each.type for block in blocks for entry in block.operations for each in entry.operation.results)
    return any(isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "i8" for kind in kinds)


Known = dict[ir.Value, Dequantised | None]  # what has been read: a tensor may have several readers


def read_dequantised(value: ir.Value, known: Known | None = None) -> Dequantised | None:
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


def _read(value: ir.Value, known: Known) -> Dequantised | None:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType):
        return None
    if str(kind.element_type) == "i8":
        return Dequantised(value)
    if isinstance(value.owner, ir.Block):
        return None
    operation = value.owner.operation
    if operation.name == "linalg.generic":
        return _read_generic(operation, known)
    if operation.name == "tensor.pad":
        return _read_pad(operation, known)
    if operation.name in _VIEWS:
        return _read_view(operation, known)
    return None


def _repeated(operation: ir.Operation, source: Dequantised) -> ir.Value:
    """The view `operation` of the bytes."""
    kind = ir.RankedTensorType(operation.results[0].type)
    element = ir.RankedTensorType(source.bytes.type).element_type
    narrow = ir.RankedTensorType.get(kind.shape, element, loc=operation.location)
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    return create(operation.name, [narrow], [source.bytes, *list(operation.operands)[1:]], operation, attributes).result


def _read_view(operation: ir.Operation, known: Known) -> Dequantised | None:
    source = read_dequantised(operation.operands[0], known)
    if source is None or source.unsigned is None:
        return None
    moved = _moved_axes(operation)
    if moved is None and source.sides:
        return None
    axes = moved or {}
    if any(axis is not None and axis not in axes for side in source.sides for axis in side.axes):
        return _split(operation, source, axes)
    return _with_axes(replace(source, bytes=_repeated(operation, source)), axes)


def _split(operation: ir.Operation, source: Dequantised, moved: dict[int, int]) -> Dequantised | None:
    """`source`, axes of whose sides are split by `operation`: the channels of a convolution in groups."""
    shape = list(ir.RankedTensorType(operation.results[0].type).shape)
    if operation.name != "tensor.expand_shape" or ir.ShapedType.get_dynamic_size() in shape:
        return None
    groups = [list(group) for group in reassociation(operation)]

    def expanded(side: Side) -> Side:
        extents = list(ir.RankedTensorType(side.value.type).shape)
        axes: list[int | None] = []
        parts: list[list[int]] = []
        wide: list[int] = []
        for extent, axis in zip(extents, side.axes, strict=True):
            own = [axis] if axis is None else [moved[axis]] if axis in moved else groups[axis]
            parts.append(list(range(len(wide), len(wide) + len(own))))
            wide += [extent] if axis is None else [shape[each] for each in own if each is not None]
            axes += own
        with operation.location:
            kind = ir.RankedTensorType.get(wide, ir.RankedTensorType(side.value.type).element_type)
            attributes = {"reassociation": reassociation_attribute(parts, operation.context),
                          "static_output_shape": ir.DenseI64ArrayAttr.get(wide, operation.context)}
            value = create("tensor.expand_shape", [kind], [side.value], operation, attributes).result
        return replace(side, value=value, axes=tuple(axes))

    zero, *scales = (expanded(each) if isinstance(each, Side) else each for each in (source.zero, *source.scales))
    return replace(source, bytes=_repeated(operation, source), zero=zero, scales=tuple(scales))  # type: ignore[arg-type]


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


def _with_axes(what: Dequantised, axes: dict[int, int]) -> Dequantised:
    def moved(number: Number) -> Number:
        if not isinstance(number, Side):
            return number
        return replace(number, axes=tuple(None if axis is None else axes[axis] for axis in number.axes))

    zero, *scales = (moved(number) for number in (what.zero, *what.scales))
    return replace(what, zero=zero, scales=tuple(scales))  # type: ignore[arg-type]


def _read_pad(operation: ir.Operation, known: Known) -> Dequantised | None:
    """Padding by zero, which is padding of the bytes by their zero point."""
    source = read_dequantised(operation.operands[0], known)
    if source is None or source.unsigned is None or isinstance(source.zero, Side):
        return None
    if any(isinstance(scale, Side) and any(axis is not None for axis in scale.axes) for scale in source.scales):
        return None
    block = operation.regions[0].blocks[0]
    if len(list(block.operations)) != 1 or known_number(block.operations[0].operation.operands[0]) != 0:
        return None
    if not (0 <= source.zero <= 255 if source.unsigned else -128 <= source.zero <= 127):
        return None
    return replace(source, bytes=pad_bytes(operation, source.bytes, (source.zero + 128) % 256 - 128))


def pad_bytes(operation: ir.Operation, source: ir.Value, number: int) -> ir.Value:
    """`source` padded as the tensor.pad `operation` pads, by the signed byte `number`."""
    kind = ir.RankedTensorType(operation.results[0].type)
    element = ir.RankedTensorType(source.type).element_type
    with operation.location:
        value = {"value": ir.IntegerAttr.get(element, number)}
        constant = create("arith.constant", [element], [], operation, value).result
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        narrow = ir.RankedTensorType.get(kind.shape, element)
        padded = create("tensor.pad", [narrow], [source, *list(operation.operands)[1:]], operation, attributes, 1)
        index = ir.IndexType.get()
        inner = ir.Block.create_at_start(padded.regions[0], [index] * kind.rank, [operation.location] * kind.rank)
        with ir.InsertionPoint(inner):
            ir.Operation.create("tensor.yield", operands=[constant])
    return padded.result


# -- element-wise operations -----------------------------------------------------------------------------


def is_elementwise(operation: ir.Operation) -> bool:
    """Whether a nest writes each element of its one result once, in order."""
    if operation.name != "linalg.generic" or len(operation.results) != 1:
        return False
    if "reduction" in str(operation.attributes["iterator_types"]):
        return False
    output = maps_of(operation)[-1]
    return output == ir.AffineMap.get_identity(output.n_dims, operation.context)


def _arithmetic(operation: ir.Operation) -> list[ir.Operation] | None:
    """The operations in the body of an element-wise nest; None if some cannot be read."""
    if not is_elementwise(operation):
        return None
    *body, last = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    return None if any(each.name not in _READ for each in body) else [*body, last]


def _read_generic(operation: ir.Operation, known: Known) -> Dequantised | None:
    found = _arithmetic(operation)
    if found is None:
        return None
    *body, last = found
    inputs = maps_of(operation)[:-1]
    block = operation.regions[0].blocks[0]
    operands = list(operation.operands)[: len(inputs)]
    values: dict[ir.Value, Dequantised | Number] = {}
    for argument, operand, each in zip(block.arguments, operands, inputs, strict=False):
        found = _operand(operation, operand, each, known)
        if found is not None:
            values[argument] = found
    for each in body:
        result = _evaluate(each, values)
        if result is None:
            return None
        values[each.results[0]] = result
    found = values.get(last.operands[0])
    if isinstance(found, Dequantised):
        return found
    return None


def _is_whole(operand: ir.Value, each: ir.AffineMap) -> bool:
    """Whether a map reads a tensor point by point; along axes of extent 1 also as element 0."""
    if not isinstance(operand.type, ir.RankedTensorType) or len(each.results) != each.n_dims:
        return False
    axes = _axes(each, list(operand.type.shape))
    return axes is not None and all(axis in (None, place) for place, axis in enumerate(axes))


def _operand(
    operation: ir.Operation, operand: ir.Value, each: ir.AffineMap, known: Known
) -> Dequantised | Number | None:
    """An operand of an element-wise nest: a number, a dequantised tensor of all points, or a side."""
    number = known_number(operand)
    if number is not None:
        return number
    if not isinstance(operand.type, ir.RankedTensorType):
        return None
    if _is_whole(operand, each) and each.n_dims > 0:
        found = read_dequantised(operand, known)
        if found is not None:
            return found
    axes = _axes(each, list(ir.RankedTensorType(operand.type).shape))
    if axes is None:
        return None
    if len([axis for axis in axes if axis is not None]) < each.n_dims:
        return Side(operand, axes)
    if None in axes:
        return Side(operand, axes)
    permuted = read_dequantised(operand, known)
    if permuted is None or permuted.unsigned is None or set(axes) != set(range(each.n_dims)):
        return None
    places = {axis: place for axis, place in enumerate(axes) if place is not None}
    return _with_axes(replace(permuted, bytes=_transposed(operation, permuted.bytes, each)), places)


def _transposed(operation: ir.Operation, source: ir.Value, each: ir.AffineMap) -> ir.Value:
    """`source` in the order of the points of `operation`."""
    shape = list(ir.RankedTensorType(operation.results[0].type).shape)
    with operation.location:
        narrow = ir.RankedTensorType.get(shape, ir.RankedTensorType(source.type).element_type)
        initial = operation.operands[len(operation.operands) - 1].owner
        dynamic = ir.ShapedType.get_dynamic_size() in shape
        sizes = list(initial.operation.operands) if dynamic and not isinstance(initial, ir.Block) else []
        empty = create("tensor.empty", [narrow], sizes, operation).result
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


def _evaluate(
    operation: ir.Operation, known: dict[ir.Value, Dequantised | Number]
) -> Dequantised | Number | None:
    name = operation.name
    if name == "arith.constant":
        return constant_number(operation)
    operands = [known.get(each, known_number(each)) for each in operation.operands]
    if not operands or any(each is None for each in operands):
        return None
    first = operands[0]
    if name in (*_WIDENING, *_TO_FLOAT):
        return _converted(name, first, operation)
    if len(operands) != 2 or not isinstance(operands[1] if name != "arith.mulf" else 0, (Side, int, float)):
        return None
    second = operands[1]
    if name == "arith.subi" and isinstance(first, Dequantised) and not isinstance(second, Dequantised | float):
        assert second is not None
        return _shifted(first, second)
    if name == "arith.addi" and isinstance(first, Dequantised) and isinstance(second, int):
        return _shifted(first, -second)
    if name == "arith.subf" and isinstance(first, Dequantised) and isinstance(second, float):
        return _shifted(first, int(second)) if second.is_integer() and not first.scales else None
    if name == "arith.mulf":
        if not isinstance(first, Dequantised):
            first, second = second, first
        if isinstance(first, Dequantised) and first.is_real and not isinstance(second, Dequantised):
            return replace(first, scales=(*first.scales, second))  # type: ignore[arg-type]
    return None


def _converted(name: str, first: Dequantised | Number | None, operation: ir.Operation) -> Dequantised | Number | None:
    if isinstance(first, int | float) and name in _TO_FLOAT:
        return float(first)
    if isinstance(first, int) and name in _WIDENING:
        bits = operation.operands[0].type.width  # type: ignore[attr-defined]
        return first if first >= 0 or name == "arith.extsi" else first + (1 << bits)
    if isinstance(first, Side):
        return replace(first, casts=(*first.casts, name)) if name in _WIDENING else None
    if not isinstance(first, Dequantised) or first.is_real:
        return None
    unsigned = name in ("arith.extui", "arith.uitofp") if first.unsigned is None else first.unsigned
    may_be_negative = first.shifted or not unsigned
    if first.unsigned is not None and may_be_negative and name in ("arith.extui", "arith.uitofp"):
        return None
    return replace(first, unsigned=unsigned, is_real=name in _TO_FLOAT)


def _shifted(first: Dequantised, zero: Side | int) -> Dequantised | None:
    if first.unsigned is None or first.shifted or first.scales:
        return None
    if isinstance(zero, int) and abs(zero) > 255:
        return None
    return replace(first, zero=zero, shifted=True)


def nest(
    at: ir.Operation, inputs: list[ir.Value], output: ir.Value, maps: list[ir.AffineMap],
    body: Callable[[ir.Block], ir.Value],
    reduced: frozenset[int] = frozenset(),
) -> ir.Value:
    """A loop nest before `at` with the body that `body` builds; loops `reduced` are reductions."""
    kind = ir.RankedTensorType(output.type)
    kinds = ["reduction" if d in reduced else "parallel" for d in range(maps[-1].n_dims)]
    with at.location, ir.InsertionPoint(at):
        created = ir.Operation.create(
            "linalg.generic", results=[kind], operands=[*inputs, output],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps]),
                "iterator_types": ir.ArrayAttr.get([
                    ir.Attribute.parse(f"#linalg.iterator_type<{each}>") for each in kinds
                ]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
            },
            regions=1,
        )
        types = [
            value.type.element_type if isinstance(value.type, ir.RankedTensorType) else value.type for value in inputs
        ]
        types.append(kind.element_type)
        block = ir.Block.create_at_start(created.regions[0], types, [at.location] * len(types))
        with ir.InsertionPoint(block):
            ir.Operation.create("linalg.yield", operands=[body(block)])
    return created.results[0]
