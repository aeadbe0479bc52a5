"""Writes what ONNX says of extents that only a call knows, where the wheel's lowering takes them for granted.

    %2 = torch.operator "onnx.Add"(%0, %1)       cf.assert (n = m, or n = 1, or m = 1)
         : [?], [?]                        →     %a = torch_c.to_builtin_tensor %0
                                                 %b = linalg.generic {extract %a[linalg.index 0 · (n = 1 ? 0 : 1)]}
                                                 %x = torch_c.from_builtin_tensor %b … and so for %1
                                                 %2 = torch.operator "onnx.Add"(%x, %y)

An operand whose extent may be 1 where another's is not is stretched: `settle_stretches` drops that where the extents
turn out to be the same expression. Parts of Split, and what is gathered and scattered, are asserted to fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx_model import OnnxModel
from motet.compiler.frontends.onnx_tensors import DYNAMIC, Kind, create, kind_of, know_operations
from motet.compiler.frontends.onnx_writing import REQUIRE
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.ir.source_names import names_of

_EQUAL, _AT_MOST = 0, 3  # of arith.cmpi's predicates
_BROADCASTS = frozenset({
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip

Extents = Mapping[str, Sequence[int | str | None]]  # of values by name: numbers, symbols, or neither is known


def symbolic_shapes(model: OnnxModel) -> Extents:
    """Extents of all values whose rank is known: numbers, the names that the model gives them, None for others."""
    graph = model.proto.graph
    found: dict[str, list[int | str | None]] = {
        info.name: [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in info.type.tensor_type.shape.dim
        ]
        for info in (*graph.output, *graph.value_info, *graph.input) if info.type.tensor_type.HasField("shape")
    }
    return found | {name: list(array.shape) for name, array in model.constants.items()}


def settle_extents(module: ir.Module, inputs: Mapping[str, Sequence[str]], extents: Extents) -> None:
    """In place, in the dialect `torch` with operators of ONNX. `inputs` are those of nodes by name."""
    work = [(op, rule) for op in find_operations(module, "torch.operator") if (rule := _RULES.get(_operator(op)))]
    if not work:
        return
    know_operations(module)
    for op, rule in work:
        with op.context, op.location, ir.InsertionPoint(op):
            if (node := _Node.of(op, inputs, extents)) is not None:
                rule(node)


def _operator(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value.removeprefix("onnx.")


@dataclass(frozen=True)
class _Operand:
    """A tensor that a node takes: input `number`; `symbols` are its extents as the model calls them."""

    number: int
    value: ir.Value
    kind: Kind
    symbols: Sequence[int | str | None]

    @property
    def rank(self) -> int:
        return len(self.kind.extents)


@dataclass(frozen=True)
class _Node:
    op: ir.Operation
    operands: Sequence[_Operand]

    @staticmethod
    def of(op: ir.Operation, inputs: Mapping[str, Sequence[str]], extents: Extents) -> _Node | None:
        """None where the type of an input is unknown, for which there is no lowering."""
        names = next((inputs[name] for name in names_of(op.location) if name in inputs), ())
        found: list[_Operand] = []
        for number, value in enumerate(op.operands):
            kind = kind_of(value)
            if kind is not None:
                symbols = extents.get(names[number], ()) if number < len(names) else ()
                known = symbols if len(symbols) == len(kind.extents) else [None] * len(kind.extents)
                found.append(_Operand(number, value, kind, known))
            elif number < len(names) and names[number]:
                return None
        return _Node(op, found)

    def operand(self, number: int) -> _Operand | None:
        return next((operand for operand in self.operands if operand.number == number), None)

    def attribute(self, name: str, default: int) -> int:
        key = f"torch.onnx.{name}"
        return ir.IntegerAttr(self.op.attributes[key]).value if key in self.op.attributes else default


@dataclass(frozen=True)
class _Place:
    """Axis `axis` of an operand."""

    operand: _Operand
    axis: int

    @property
    def extent(self) -> int:
        return self.operand.kind.extents[self.axis]

    @property
    def is_dynamic(self) -> bool:
        return self.extent == DYNAMIC

    @property
    def size(self) -> ir.Value:
        if not self.is_dynamic:
            return constant_index(self.extent)
        return extent_of(_builtin(self.operand), self.axis)

    def may_differ(self, other: _Place) -> bool:
        """Whether one of the two may be 1 where the other is not."""
        if not self.is_dynamic and not other.is_dynamic:
            return False
        symbol = self.operand.symbols[self.axis]
        return symbol is None or symbol != other.operand.symbols[other.axis]

    def __str__(self) -> str:
        return f"axis {self.axis} of input {self.operand.number}"


def _builtin(operand: _Operand) -> ir.Value:
    return create("torch_c.to_builtin_tensor", operand.kind.builtin, [operand.value])


# -- what a call may not give


def _where(node: _Node) -> None:
    """Where that stands for an assertion (`Numbers.require`); else its operands broadcast."""
    name = next((name for name in names_of(node.op.location) if REQUIRE in name), "")
    if not name:
        _broadcast(node)
        return
    source, said = name.split(REQUIRE, 1)
    operator, text = said.split(": ", 1)
    place = ir.Location.fused([ir.Location.name(source)], ir.StringAttr.get(operator))
    with place:
        condition = create("tensor.extract", node.operands[0].kind.scalar, [_builtin(node.operands[0])])
        _assert(condition, text)
    node.op.results[0].replace_all_uses_with(node.op.operands[1])
    node.op.erase()


# -- broadcasting


def _broadcast(node: _Node) -> None:
    """All operands, of which any may be stretched."""
    _stretch_together(node, [(operand, 0) for operand in node.operands])


def _matmul(node: _Node) -> None:
    """Axes before the two of a matrix."""
    _stretch_together(node, [(operand, 2) for operand in node.operands if operand.rank > 2])


def _stretch_together(node: _Node, operands: Sequence[tuple[_Operand, int]]) -> None:
    """`operands` broadcast along all axes but so many of the last ones."""
    targets: dict[int, dict[int, tuple[_Place, ...]]] = {operand.number: {} for operand, _ in operands}
    rank = max((operand.rank - last for operand, last in operands), default=0)
    for back in range(1, rank + 1):
        places = [
            _Place(operand, operand.rank - last - back) for operand, last in operands if operand.rank - last >= back
        ]
        places = [place for place in places if place.extent != 1]
        if any(place.may_differ(places[0]) for place in places[1:]):
            for place in places:
                if place.is_dynamic:
                    targets[place.operand.number][place.axis] = tuple(places)
    for operand, _ in operands:
        axes = {axis: _together(places) for axis, places in targets[operand.number].items()}
        if axes:
            node.op.operands[operand.number] = _stretched(operand, axes)


def _together(places: Sequence[_Place]) -> ir.Value:
    """The extent of what `places` broadcast to, which are asserted to fit."""
    known = next((place for place in places if not place.is_dynamic), None)
    first, *others = [known, *(place for place in places if place is not known)] if known else places
    total = first.size
    for other in others:
        size = other.size
        said = f"{first} and {other} must be equal, or one of them 1"
        if known is not None:
            _assert_any([(size, total), (size, constant_index(1))], said)
            continue
        one = constant_index(1)
        _assert_any([(total, size), (total, one), (size, one)], said)
        # The other one where one is 1; else both are the same. 0 and 1 make 0.
        least = _index("arith.minsi", _index("arith.minsi", total, size), one)
        total = _index("arith.muli", _index("arith.maxsi", total, size), least)
    return total


def _follow(node: _Node) -> None:
    """Slopes, factors and the like, which are stretched to the first operand."""
    data, *others = node.operands
    for other in others:
        axes: dict[int, ir.Value] = {}
        for axis in range(other.rank):
            own, along = _Place(other, axis), _Place(data, axis + data.rank - other.rank)
            if own.is_dynamic and along.axis >= 0 and own.may_differ(along):
                axes[axis] = _to(own, along.size, str(along))
        if axes:
            node.op.operands[other.number] = _stretched(other, axes)


def _gemm(node: _Node) -> None:
    """The third operand is stretched to the product of the others."""
    added = node.operand(2)
    if added is None:
        return
    factors = node.operands[0], node.operands[1]
    product = [_Place(factors[0], node.attribute("transA", 0)), _Place(factors[1], 1 - node.attribute("transB", 0))]
    axes: dict[int, ir.Value] = {}
    for axis in range(added.rank):
        own, other = _Place(added, axis), product[axis + 2 - added.rank]
        if own.is_dynamic and own.may_differ(other):
            axes[axis] = _to(own, other.size, str(other))
    if axes:
        node.op.operands[2] = _stretched(added, axes)


def _to(place: _Place, size: ir.Value, what: str) -> ir.Value:
    """`size`, which the extent at `place` is asserted to be, unless it is 1."""
    _assert_any([(place.size, size), (place.size, constant_index(1))], f"{place} must be 1, or equal to {what}")
    return size


def _expand(node: _Node) -> None:
    data, result = node.operands[0], kind_of(node.op.results[0])
    if result is None or not any(extent == DYNAMIC for extent in data.kind.extents):
        return
    rank = len(result.extents)
    shape = ir.Operation.create(
        "torch.operator", results=[ir.Type.parse(f"!torch.vtensor<[{','.join('?' * rank)}],f32>")],
        operands=[node.op.operands[1]], attributes={"name": ir.StringAttr.get("onnx.ConstantOfShape")},
    )  # fmt: skip
    of_shape = ir.RankedTensorType.get([DYNAMIC] * rank, ir.F32Type.get())
    asked = create("torch_c.to_builtin_tensor", of_shape, shape.results)
    sizes: list[ir.Value] = []
    for axis in range(rank):
        size, own = extent_of(asked, axis), axis - (rank - data.rank)
        if own >= 0 and data.kind.extents[own] != 1:
            place = _Place(data, own)
            size = _expanded(place, size, f"{place} and element {axis} of the shape must be equal, or one of them 1")
        sizes.append(size)
    value = _read_stretched(data, sizes, range(data.rank))
    value = create("tensor.cast", result.builtin, [value]) if value.type != result.builtin else value
    node.op.results[0].replace_all_uses_with(create("torch_c.from_builtin_tensor", node.op.results[0].type, [value]))
    node.op.erase()


def _expanded(place: _Place, size: ir.Value, said: str) -> ir.Value:
    one, own = constant_index(1), place.size
    _assert_any([(own, size), (own, one), (size, one)], said)
    least = _index("arith.minsi", _index("arith.minsi", own, size), one)
    return _index("arith.muli", _index("arith.maxsi", own, size), least)


def _stretched(operand: _Operand, axes: Mapping[int, ir.Value]) -> ir.Value:
    """`operand` with other extents along `axes`, of its own rank."""
    sizes = [axes[axis] if axis in axes else _Place(operand, axis).size for axis in range(operand.rank)]
    made = _read_stretched(operand, sizes, axes)
    shape = ",".join("?" if extent == DYNAMIC else str(extent) for extent in operand.kind.extents)
    kind = ir.Type.parse(f"!torch.vtensor<[{shape}],{operand.kind.element}>")
    made = create("tensor.cast", operand.kind.builtin, [made]) if made.type != operand.kind.builtin else made
    return create("torch_c.from_builtin_tensor", kind, [made])


def _read_stretched(operand: _Operand, sizes: Sequence[ir.Value], axes: Iterable[int]) -> ir.Value:
    """A tensor of `sizes` whose elements are those of `operand`, along its `axes` the only one again where it has one:
    places are multiplied by 0 then, else by 1, so that LLVM makes a loop for each."""
    source = _builtin(operand)
    rank, shift = len(sizes), len(sizes) - operand.rank
    moves = {axis: _moves(_Place(operand, axis).size) for axis in axes}
    kind = ir.RankedTensorType.get([DYNAMIC] * rank, operand.kind.scalar)
    made = ir.Operation.create(
        "linalg.generic", results=[kind], operands=[create("tensor.empty", kind, sizes)], regions=1, attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1]),
        },
    )  # fmt: skip
    block = made.regions[0].blocks.append(operand.kind.scalar, arg_locs=[made.location])
    with ir.InsertionPoint(block):
        index = ir.IndexType.get()
        places = [create("linalg.index", index, [], {"dim": _number(axis + shift)}) for axis in range(operand.rank)]
        places = [_index("arith.muli", p, moves[axis]) if axis in moves else p for axis, p in enumerate(places)]
        element = create("tensor.extract", operand.kind.scalar, [source, *places])
        ir.Operation.create("linalg.yield", operands=[element])
    return made.results[0]


def _moves(size: ir.Value) -> ir.Value:
    """0 for an extent of 1, and of 0, which nothing is read of; else 1."""
    bounded = _index("arith.minsi", _index("arith.subi", size, constant_index(1)), constant_index(1))
    return _index("arith.maxsi", bounded, constant_index(0))


def _number(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


# -- what has to fit


def _split(node: _Node) -> None:
    """The parts are all there is."""
    if not node.operands[0].rank:
        return  # not known, as that of a result of an If is not; what cannot lower is refused later
    place = _Place(node.operands[0], node.attribute("axis", 0) % node.operands[0].rank)
    parts = _parts(node)
    if parts is not None and place.is_dynamic:
        _assert_any([(place.size, constant_index(sum(parts)))], f"{place} must be equal to the sum of the parts")


def _parts(node: _Node) -> list[int] | None:
    """The extents that a Split names; None where it names none, or not in numbers."""
    given = node.op.attributes
    if "torch.onnx.split" in given:  # before operator set 13
        return [ir.IntegerAttr(part).value for part in ir.ArrayAttr(given["torch.onnx.split"])]
    return _numbers(node, 1)


def _numbers(node: _Node, number: int) -> list[int] | None:
    """What input `number` is, where it is a constant of integers."""
    if len(node.op.operands) <= number or isinstance(node.op.operands[number].owner, ir.Block):
        return None
    value = node.op.operands[number].owner.operation.attributes.get("torch.onnx.value", None)
    return [int(part) for part in ir.DenseIntElementsAttr(value)] if value is not None else None


def _slice(node: _Node) -> None:
    """As many elements are taken as the model declares: what they become is not looked at again."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    starts, ends, axes, steps = (_numbers(node, number) for number in (1, 2, 3, 4))
    absent = [number for number in (3, 4) if node.operand(number) is None]
    if result is None or starts is None or ends is None:
        return
    axes = list(range(len(starts))) if 3 in absent else axes
    steps = [1] * len(starts) if 4 in absent else steps
    for start, end, axis, step in zip(starts, ends, axes or (), steps or (), strict=False):
        place, declared = _Place(data, axis % data.rank), result.extents[axis % data.rank]
        if place.is_dynamic and declared != DYNAMIC and step:
            said = f"{place} must have {declared} of the elements that are asked for"
            _assert_any([(_taken(place.size, start, end, step), constant_index(declared))], said)


def _taken(extent: ir.Value, start: int, end: int, step: int) -> ir.Value:
    """How many of `extent` elements a slice takes."""
    zero, one = constant_index(0), constant_index(1)
    lowest, highest = (zero, extent) if step > 0 else (constant_index(-1), _index("arith.subi", extent, one))

    def edge(place: int, lowest: ir.Value) -> ir.Value:
        value = constant_index(place) if place >= 0 else _index("arith.addi", extent, constant_index(place))
        return _index("arith.minsi", _index("arith.maxsi", value, lowest), highest)

    first, last = edge(start, zero), edge(end, lowest)
    span = _index("arith.subi", last, first) if step > 0 else _index("arith.subi", first, last)
    places = _index("arith.addi", span, constant_index(abs(step) - 1))
    return _index("arith.maxsi", _index("arith.floordivsi", places, constant_index(abs(step))), zero)


def _declared(node: _Node) -> None:
    """The operand has the extents that the model declares for the result."""
    result = kind_of(node.op.results[0])
    if not node.operands or result is None or len(result.extents) != node.operands[0].rank:
        return
    for axis, declared in enumerate(result.extents):
        place = _Place(node.operands[0], axis)
        if place.is_dynamic and declared != DYNAMIC:
            _assert_any([(place.size, constant_index(declared))], f"{place} must be {declared}, as is declared")


def _reshape(node: _Node) -> None:
    """As many elements are there as the declared result has: a part of them is taken for the whole elsewhere."""
    data, result = node.operands[0], kind_of(node.op.results[0])
    if result is None or DYNAMIC in result.extents or DYNAMIC not in data.kind.extents:
        return
    count = constant_index(1)
    for axis in range(data.rank):
        count = _index("arith.muli", count, _Place(data, axis).size)
    declared = math.prod(result.extents)
    _assert_any([(count, constant_index(declared))], f"the elements of input {data.number} must be {declared}")


def _einsum(node: _Node) -> None:
    """The extents of a letter are equal, unless one of them is known to be 1."""
    given = node.op.attributes
    if "torch.onnx.equation" not in given:
        return
    terms = ir.StringAttr(given["torch.onnx.equation"]).value.replace(" ", "").partition("->")[0].split(",")
    found: dict[str, list[_Place]] = {}
    for operand in node.operands:
        before, _, after = terms[operand.number].partition("...")
        for axis, letter in [*enumerate(before), *enumerate(after, operand.rank - len(after))]:
            place = _Place(operand, axis)
            if place.extent != 1:
                found.setdefault(letter, []).append(place)
    for first, *others in found.values():
        for other in others:
            if first.may_differ(other):
                _assert_equal(first, other)


def _gather_elements(node: _Node) -> None:
    data, indices = node.operands[0], node.operands[1]
    if data.rank:
        _assert_inside(indices, data, node.attribute("axis", 0) % data.rank)


def _scatter_elements(node: _Node) -> None:
    data, indices, updates = node.operands[:3]
    if data.rank:
        _assert_inside(indices, data, node.attribute("axis", 0) % data.rank)
    for axis in range(indices.rank):
        _assert_equal(_Place(indices, axis), _Place(updates, axis))


def _assert_inside(indices: _Operand, data: _Operand, along: int) -> None:
    for axis in range(data.rank if data.rank == indices.rank else 0):
        own, other = _Place(indices, axis), _Place(data, axis)
        if axis != along and (own.is_dynamic or other.is_dynamic):
            said = f"{own} must be at most {other}"
            _assert(_compare(_AT_MOST, own.size, other.size), said)


def _gather_nd(node: _Node) -> None:
    data, indices = node.operands[:2]
    for axis in range(node.attribute("batch_dims", 0)):
        _assert_equal(_Place(indices, axis), _Place(data, axis))


def _scatter_nd(node: _Node) -> None:
    data, indices, updates = node.operands[:3]
    depth = indices.kind.extents[-1]
    for axis in range(indices.rank - 1):
        _assert_equal(_Place(indices, axis), _Place(updates, axis))
    if depth != DYNAMIC:
        for axis in range(indices.rank - 1, updates.rank):
            _assert_equal(_Place(data, axis - (indices.rank - 1) + depth), _Place(updates, axis))


def _assert_equal(first: _Place, second: _Place) -> None:
    if first.is_dynamic or second.is_dynamic:
        _assert_any([(first.size, second.size)], f"{first} and {second} must be equal")


def _assert_any(pairs: Sequence[tuple[ir.Value, ir.Value]], said: str) -> None:
    """That two of one of the `pairs` are equal."""
    condition = _compare(_EQUAL, *pairs[0])
    for pair in pairs[1:]:
        condition = create("arith.ori", condition.type, [condition, _compare(_EQUAL, *pair)])
    _assert(condition, said)


def _assert(condition: ir.Value, said: str) -> None:
    ir.Operation.create("cf.assert", operands=[condition], attributes={"msg": ir.StringAttr.get(said)})


def _compare(predicate: int, left: ir.Value, right: ir.Value) -> ir.Value:
    return create("arith.cmpi", ir.IntegerType.get_signless(1), [left, right], {"predicate": _number(predicate)})


def _index(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return create(name, ir.IndexType.get(), [left, right])


_OF_SAME_SHAPE = ("Abs", "Cast", "Exp", "Identity", "Log", "Neg", "Not", "Relu", "Sigmoid", "Sqrt", "Tanh")
_RULES: dict[str, Callable[[_Node], None]] = {
    **dict.fromkeys(sorted(_BROADCASTS), _broadcast), **dict.fromkeys(_OF_SAME_SHAPE, _declared),
    "Einsum": _einsum, "Expand": _expand, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "Gemm": _gemm, "LayerNormalization": _follow, "MatMul": _matmul,
    "PRelu": _follow, "Reshape": _reshape, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Split": _split, "Where": _where,
}  # fmt: skip
