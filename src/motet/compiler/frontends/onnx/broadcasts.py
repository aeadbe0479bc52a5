"""Broadcasts operands explicitly along dynamic extents.

    %2 = torch.operator "onnx.Add"(%0, %1)       cf.assert (n = m, or n = 1, or m = 1)
         : [?], [?]                        →     %a = torch_c.to_builtin_tensor %0
                                                 %b = linalg.generic {extract %a[linalg.index 0 · (n = 1 ? 0 : 1)]}
                                                 %x = torch_c.from_builtin_tensor %b … and so for %1
                                                 %2 = torch.operator "onnx.Add"(%x, %y)

An operand whose extent may be 1 where another's is not is expanded ("stretched"). `settle_stretches` removes the
expansion where both extents prove to be the same expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from motet.compiler.frontends.onnx.extent_demands import Tie
from motet.compiler.frontends.onnx.operator_demands import BROADCASTS
from motet.compiler.frontends.onnx.tensors import TorchKind, as_torch, kind_of, replace
from motet.compiler.frontends.onnx.torch_operands import (
    ExtentOperand,
    NodeOperands,
    OperandAxis,
    assert_demand,
    assert_that,
    builtin,
    i64,
    sized,
)
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.nests import loops
from motet.compiler.ir.sizes import constant_index, extent_of, on_indices

_BROADCAST = Tie(0, 0, 1, 0, either=True)



def _matmul(node: NodeOperands) -> None:
    """Broadcasts the batch axes, which precede the two axes of the matrices."""
    _stretch_together(node, last=2)


def _stretch_together(node: NodeOperands, last: int = 0) -> None:
    """Broadcasts all operands with each other, except along their `last` trailing axes."""
    targets: dict[int, dict[int, Sequence[OperandAxis]]] = {operand.number: {} for operand in node.operands}
    for back in range(last + 1, max((operand.rank for operand in node.operands), default=0) + 1):
        places = [OperandAxis(operand, operand.rank - back) for operand in node.operands if operand.rank >= back]
        places = [place for place in places if place.extent != 1]
        if any(place.may_differ(places[0]) for place in places[1:]):
            for place in places:
                if place.is_dynamic:
                    targets[place.operand.number][place.axis] = places
    for operand in node.operands:
        axes = {axis: _together(places) for axis, places in targets[operand.number].items()}
        if axes:
            node.op.operands[operand.number] = _stretched(operand, axes)


def _together(places: Sequence[OperandAxis]) -> ir.Value:
    """The common extent of `places` after broadcasting; asserts that they are compatible."""
    known = next((place for place in places if not place.is_dynamic), None)
    first, *others = [known, *(place for place in places if place is not known)] if known else places
    total = first.size
    for other in others:
        said = f"{first} and {other} must be equal, or one of them 1"
        if known is None:
            total = _common(total, other.size, said)
        else:
            assert_that(_BROADCAST.fits(known.extent, sized(other.size)).value, said)
    return total


def _common(one: ir.Value, other: ir.Value, said: str) -> ir.Value:
    """The extent of two that are asserted to be equal, or one of them 1."""
    assert_that(_BROADCAST.fits(sized(one), sized(other)).value, said)
    # max · min(one, other, 1): the larger one if one of them is 1, the common one if equal, 0 for 0 and 1.
    least = on_indices("arith.minsi", on_indices("arith.minsi", one, other), constant_index(1))
    return on_indices("arith.muli", on_indices("arith.maxsi", one, other), least)


def _follow(node: NodeOperands) -> None:
    """Broadcasts operands to others: slopes, scales and offsets, and the third one of Gemm."""
    axes: dict[int, dict[int, ir.Value]] = {}
    for demand in node.demands():
        if isinstance(demand, Tie) and demand.stretches:
            own, along = node.axes_of(demand)
            if own.is_dynamic and own.may_differ(along):
                assert_demand(node, demand)
                axes.setdefault(demand.number, {})[demand.axis] = along.size
    for operand in node.operands:
        if operand.number in axes:
            node.op.operands[operand.number] = _stretched(operand, axes[operand.number])


def _expand(node: NodeOperands) -> None:
    data, result = node.operands[0], kind_of(node.op.results[0])
    if result is None or not any(extent == DYNAMIC for extent in data.kind.extents):
        return
    rank = len(result.extents)
    shape = ir.Operation.create(
        "torch.operator", results=[TorchKind((DYNAMIC,) * rank, "f32").torch],
        operands=[node.op.operands[1]], attributes={"name": ir.StringAttr.get("onnx.ConstantOfShape")},
    )  # fmt: skip
    of_shape = ir.RankedTensorType.get([DYNAMIC] * rank, ir.F32Type.get())
    asked = create("torch_c.to_builtin_tensor", of_shape, shape.results)
    sizes: list[ir.Value] = []
    for axis in range(rank):
        size, own = extent_of(asked, axis), axis - (rank - data.rank)
        if own >= 0 and data.kind.extents[own] != 1:
            place = OperandAxis(data, own)
            size = _common(place.size, size, f"{place} and element {axis} of the shape must be equal, or one of them 1")
        sizes.append(size)
    value = _read_stretched(data, sizes, range(data.rank))
    value = create("tensor.cast", result.builtin, [value]) if value.type != result.builtin else value
    replace(node.op, value)


def _stretched(operand: ExtentOperand, axes: Mapping[int, ir.Value]) -> ir.Value:
    """`operand` expanded to new extents along `axes`; its rank is unchanged."""
    sizes = [axes[axis] if axis in axes else OperandAxis(operand, axis).size for axis in range(operand.rank)]
    made = _read_stretched(operand, sizes, axes)
    made = create("tensor.cast", operand.kind.builtin, [made]) if made.type != operand.kind.builtin else made
    return as_torch(made, operand.kind.element)


def _read_stretched(operand: ExtentOperand, sizes: Sequence[ir.Value], axes: Iterable[int]) -> ir.Value:
    """A tensor of extents `sizes` with the elements of `operand`. Along each of `axes` the index is multiplied by 0 if
    the operand's extent is 1, else by 1; LLVM unswitches the loop into one version for each."""
    source = builtin(operand)
    rank, shift = len(sizes), len(sizes) - operand.rank
    moves = {axis: _moves(OperandAxis(operand, axis).size) for axis in axes}
    kind = ir.RankedTensorType.get([DYNAMIC] * rank, operand.kind.scalar)

    def element(block: ir.Block) -> ir.Value:
        index = ir.IndexType.get()
        places = [create("linalg.index", index, [], {"dim": i64(axis + shift)}) for axis in range(operand.rank)]
        places = [on_indices("arith.muli", p, moves[axis]) if axis in moves else p for axis, p in enumerate(places)]
        return create("tensor.extract", operand.kind.scalar, [source, *places])

    return loops([], create("tensor.empty", kind, sizes), [ir.AffineMap.get_identity(rank)], element)


def _moves(size: ir.Value) -> ir.Value:
    """The factor of an index: 0 for an extent of 1 (and of 0, where it is not used), else 1."""
    bounded = on_indices("arith.minsi", on_indices("arith.subi", size, constant_index(1)), constant_index(1))
    return on_indices("arith.maxsi", bounded, constant_index(0))


RULES: dict[str, Callable[[NodeOperands], None]] = {
    **dict.fromkeys(BROADCASTS, _stretch_together), "Expand": _expand, "MatMul": _matmul,
    **dict.fromkeys(("Gemm", "LayerNormalization", "PRelu"), _follow),
}  # fmt: skip
