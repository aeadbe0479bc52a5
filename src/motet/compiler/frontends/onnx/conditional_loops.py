"""settle-loops: in the dialect `torch`, lowers loops that a condition ends to loops of `scf`.

    %y, %all = onnx.Loop(%most, %begins, %x) { … }
 →  %count, %on, %y = scf.while %on and %count < %most { … }
    %all = scf.for %i < %count, into tensor.empty(%count) { … }

The torch-mlir wheel ignores the condition of such a loop. The slices that iterations collect are computed by a second
loop, once their number is known; its extent depends on values (`read_value_extents`).
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.frontends.onnx.tensors import builtin, kind_of, know_operations
from motet.compiler.frontends.onnx.torch_operands import assert_that, compare, write
from motet.compiler.frontends.torch.operands import is_none, operator_name, operators
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.loops import repeat
from motet.compiler.ir.remap import remap
from motet.compiler.ir.sizes import as_index, constant_index, element_at, extent_of

_LESS = 2  # a predicate of arith.cmpi


def settle_loops(module: ir.Module) -> None:
    """Rewrites the module, with ONNX operators in the dialect `torch`, in place."""
    while found := [op for op in operators(module, "onnx.Loop") if _is_conditional(op)]:
        know_operations(module)
        op = found[-1]  # the innermost
        with op.context, op.location, ir.InsertionPoint(op):
            _ConditionalLoop(op).write()


def _is_conditional(op: ir.Operation) -> bool:
    most, begins = list(op.operands)[:2]
    body = op.regions[0].blocks[0]
    goes_on = body.operations[len(body.operations) - 1].operation.operands[0]
    while not isinstance(goes_on.owner, ir.Block) and operator_name(goes_on.owner.operation) in _SAME:
        goes_on = goes_on.owner.operation.operands[0]
    counted = goes_on == body.arguments[1] or _is_true(goes_on)
    return is_none(most) or not counted or not (is_none(begins) or _is_true(begins))


_SAME = ("onnx.Identity", "onnx.Cast")


def _is_true(value: ir.Value) -> bool:
    if isinstance(value.owner, ir.Block) or operator_name(value.owner.operation) != "onnx.Constant":
        return False
    given = value.owner.operation.attributes["torch.onnx.value"]
    return isinstance(given, ir.DenseElementsAttr) and given.is_splat and "true" in str(given)


class _ConditionalLoop:
    """Tensors are those of MLIR between iterations, and of the dialect `torch` in a body."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.body = op.regions[0].blocks[0]
        self.kinds = [_kind(argument) for argument in self.body.arguments]  # of the number, the condition, the states

    def write(self) -> None:
        number, truth, *_ = self.kinds
        most, begins, *begun = self.op.operands
        zero = create("arith.constant", number, [], {"value": _splat(number, 0)})
        true = create("arith.constant", truth, [], {"value": _splat(truth, 1)})
        limit = None if is_none(most) else _scalar(builtin(most))
        states = [_fitted(builtin(value), kind) for value, kind in zip(begun, self.kinds[2:], strict=True)]
        start = [zero, true if is_none(begins) else _shaped(builtin(begins), truth), *states]
        made = ir.Operation.create("scf.while", results=self.kinds, operands=start, regions=2)
        locations = [made.location] * len(start)
        condition, iteration = (region.blocks.append(*self.kinds, arg_locs=locations) for region in made.regions)
        with ir.InsertionPoint(condition):
            proceeds = _scalar(condition.arguments[1])
            if limit is not None:
                within = compare(_LESS, _scalar(condition.arguments[0]), limit)
                proceeds = create("arith.andi", proceeds.type, [proceeds, within])
            ir.Operation.create("scf.condition", operands=[proceeds, *condition.arguments])
        with ir.InsertionPoint(iteration):
            goes_on, *results = self._iteration(list(iteration.arguments))
            word = number.element_type
            one = create("arith.constant", word, [], {"value": ir.IntegerAttr.get(word, 1)})
            count = create("arith.addi", word, [_scalar(iteration.arguments[0]), one])
            following = [create("tensor.from_elements", number, [count]), _shaped(goes_on, truth)]
            ir.Operation.create("scf.yield", operands=[*following, *self._states(results)])
        last = list(made.results)
        found = [*last[2:], *self._collected(as_index(_scalar(last[0])), true, states)]
        for result, value in zip(self.op.results, found, strict=True):
            kind = _kind(result)
            result.replace_all_uses_with(create("torch_c.from_builtin_tensor", result.type, [_fitted(value, kind)]))
        self.op.erase()

    def _iteration(self, given: Sequence[ir.Value]) -> list[ir.Value]:
        """What a copy of the body returns: the condition, the states, and a slice for each collected result."""
        values = {
            argument: create("torch_c.from_builtin_tensor", argument.type, [value])
            for argument, value in zip(self.body.arguments, given, strict=True)
        }
        *operations, last = [entry.operation for entry in self.body.operations]
        for operation in operations:
            copy = operation.clone()
            remap(copy, values)
            values.update(zip(operation.results, copy.results, strict=True))
        return [builtin(values.get(value, value)) for value in last.operands]

    def _states(self, results: Sequence[ir.Value]) -> list[ir.Value]:
        return [_fitted(value, kind) for value, kind in zip(results, self.kinds[2:], strict=False)]

    def _collected(self, count: ir.Value, true: ir.Value, states: Sequence[ir.Value]) -> list[ir.Value]:
        """The slices of all iterations, by a loop that runs as often as the first."""
        results = list(self.op.results)[len(states) :]
        if not results:
            return []
        number = self.kinds[0]
        zero = create("arith.constant", number, [], {"value": _splat(number, 0)})
        first = self._iteration([zero, true, *states])[1 + len(states) :]  # only its extents are used
        room = [create("tensor.empty", _rows(slice_), [count, *_dynamic(slice_)]) for slice_ in first]

        def iteration(index: ir.Value, carried: Sequence[ir.Value]) -> Sequence[ir.Value]:
            place = create("arith.index_cast", number.element_type, [index])
            given = [create("tensor.from_elements", number, [place]), true, *carried[: len(states)]]
            _, *made = self._iteration(given)
            rows = zip(made[len(states) :], carried[len(states) :], strict=True)
            return [*self._states(made), *(_inserted(slice_, into, index) for slice_, into in rows)]

        return repeat(constant_index(0), count, [*states, *room], iteration)[len(states) :]


def _kind(value: ir.Value) -> ir.RankedTensorType:
    kind = kind_of(value)
    if kind is None:
        raise ValueError("expected a tensor of known rank")
    return ir.RankedTensorType(kind.builtin)


def _splat(kind: ir.RankedTensorType, number: int) -> ir.Attribute:
    return ir.DenseElementsAttr.get_splat(kind, ir.IntegerAttr.get(kind.element_type, number))


def _scalar(tensor: ir.Value) -> ir.Value:
    """The element of a tensor of one element."""
    return element_at(tensor, [constant_index(0)] * ir.RankedTensorType(tensor.type).rank)


def _shaped(tensor: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """A tensor of one element in the shape of `kind`."""
    return tensor if tensor.type == kind else create("tensor.from_elements", kind, [_scalar(tensor)])


def _fitted(value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    return value if value.type == kind else create("tensor.cast", kind, [value])


def _rows(slice_: ir.Value) -> ir.RankedTensorType:
    kind = ir.RankedTensorType(slice_.type)
    return ir.RankedTensorType.get([DYNAMIC, *kind.shape], kind.element_type)


def _dynamic(slice_: ir.Value) -> list[ir.Value]:
    kind = ir.RankedTensorType(slice_.type)
    return [extent_of(slice_, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]


def _inserted(slice_: ir.Value, into: ir.Value, index: ir.Value) -> ir.Value:
    """`into` with `slice_`, whose extents must be those of the others, at `index`."""
    kind = ir.RankedTensorType(slice_.type)
    sizes = _dynamic(slice_)
    axes = [axis for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
    for size, axis in zip(sizes, axes, strict=True):
        same = write("==", size, extent_of(into, axis + 1))
        assert_that(same, "expected slices of the same extents from all iterations of a loop")
    return create("tensor.insert_slice", into.type, [slice_, into, index, *sizes], {
        "static_offsets": ir.DenseI64ArrayAttr.get([DYNAMIC, *[0] * kind.rank]),
        "static_sizes": ir.DenseI64ArrayAttr.get([1, *kind.shape]),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * (kind.rank + 1)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, len(sizes), 0]),
    })  # fmt: skip
